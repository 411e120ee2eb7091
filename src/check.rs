//! `rolltap check`

use std::path::PathBuf;

use clap::Args;
use rolltap_orchestrator::check;

use crate::{Outcome, terminal};

/// Check every invariant of rollouts
///
/// A job directory: both rollout files, against the captured calls and against each other. A proxy's data directory:
/// the rollouts that its sealed trials give. A file: a rollouts.jsonl or rollouts.parquet from anywhere. Prints a line
/// per breach.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// A job directory, a proxy's data directory, or a .jsonl or .parquet file of rollouts.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Token ids must lie below this; rows that name their model's own vocabulary are held to that too.
    #[arg(long, value_name = "NUMBER")]
    vocab_size: Option<u32>,
}

const AFTER_HELP: &str = "\
Examples:
  rolltap check jobs/2026-11-21__03-42-00
  rolltap check rollouts.parquet --vocab-size 151936

Exit codes: 0 nothing found; 1 a line per breach; 2 there is nothing to check.";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let checked = check::check(&arguments.path, arguments.vocab_size, |breach| terminal::say(breach))?;
    terminal::note(format_args!("{} rows checked, {} breaches", checked.rows, checked.breaches));
    Ok(if checked.breaches == 0 { Outcome::Done } else { Outcome::Failed })
}

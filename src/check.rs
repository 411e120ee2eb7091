//! `rolltap check`

use std::path::PathBuf;

use clap::Args;
use rolltap_orchestrator::check;

use crate::{Outcome, terminal};

/// Check all invariants of rollouts
///
/// In a job directory, the command checks both rollout files against the captured calls and against each other. In a
/// data directory of a proxy, it checks the rollouts of the sealed trials. A file is a rollouts.jsonl or
/// rollouts.parquet. The output has a line per breach.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Check this job directory, data directory of a proxy, or .jsonl or .parquet file of rollouts.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Report token ids that are not below this number. A row with the vocabulary size of its model has that limit too.
    #[arg(long, value_name = "NUMBER")]
    vocab_size: Option<u32>,
}

const AFTER_HELP: &str = "\
Examples:
  rolltap check jobs/2026-11-21__03-42-00
  rolltap check rollouts.parquet --vocab-size 151936

Exit codes: 0 there is no breach; 1 there are breaches; 2 there is nothing to check.";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let checked = check::check(&arguments.path, arguments.vocab_size, |breach| terminal::say(breach))?;
    terminal::note(format_args!("{} rows checked, {} breaches", checked.rows, checked.breaches));
    Ok(if checked.breaches == 0 { Outcome::Done } else { Outcome::Failed })
}

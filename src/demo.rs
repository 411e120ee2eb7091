//! `rolltap demo`

use std::path::PathBuf;

use clap::Args;
use rolltap_orchestrator::demo;
use rolltap_orchestrator::job::Progress;
use rolltap_orchestrator::job::summary::Summary;

use crate::{Outcome, terminal};

/// Run a whole job on embedded parts only, in a minute
///
/// A simulated model with a scripted policy works at two bundled tasks, with four samples each. It uses the terminal
/// agent in the local environment. Some samples fail, as with a real policy. The demo needs no GPU, no Docker and no
/// network.
#[derive(Args)]
#[command(after_help = "Then look at the rollouts, and run:\n  rolltap check jobs/NAME")]
pub(crate) struct Arguments {
    /// Create the directory of the job in this directory.
    #[arg(short = 'o', long, env = "ROLLTAP_JOBS_DIR", value_name = "DIR", default_value = "jobs")]
    jobs_dir: PathBuf,
    /// Give the job this name. [default: demo- and the time]
    #[arg(long, value_name = "NAME")]
    job_name: Option<String>,
    /// Seed the random numbers of the simulated model. The seed decides which samples fail.
    #[arg(long, value_name = "NUMBER", default_value_t = demo::DEFAULT_SEED)]
    seed: u64,
    /// Hide the progress of running trials.
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let settings =
        demo::Settings { jobs_dir: arguments.jobs_dir, job_name: arguments.job_name, seed: arguments.seed };
    let progress = Progress::for_stderr(arguments.quiet);
    let report = demo::run(settings, progress, terminal::cancelled_by_signals()?).await?;
    terminal::say(Summary(&report));
    Ok(if report.is_clean() { Outcome::Done } else { Outcome::Failed })
}

//! `rolltap demo`

use std::path::PathBuf;

use clap::Args;
use rolltap_orchestrator::demo;
use rolltap_orchestrator::job::Progress;
use rolltap_orchestrator::summary::Summary;

use crate::{Outcome, terminal};

/// The main job on embedded parts only, in a minute
///
/// A simulated model with a scripted policy works at two bundled tasks, four samples each, with the terminal agent in
/// the local environment. Some samples fail, as they do with a real policy. Needs no GPU, no Docker and no network.
#[derive(Args)]
#[command(after_help = "Then look at the rollouts, and try:\n  rolltap check jobs/NAME")]
pub(crate) struct Arguments {
    /// Where the job's directory is made.
    #[arg(short = 'o', long, env = "ROLLTAP_JOBS_DIR", value_name = "DIR", default_value = "jobs")]
    jobs_dir: PathBuf,
    /// The job's name. [default: demo- and the time]
    #[arg(long, value_name = "NAME")]
    job_name: Option<String>,
    /// Start of the simulated model's random numbers: another seed, other samples that fail.
    #[arg(long, value_name = "NUMBER", default_value_t = demo::DEFAULT_SEED)]
    seed: u64,
    /// No progress while trials run.
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

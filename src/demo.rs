//! `rolltap demo`

use std::path::PathBuf;

use clap::Args;
use rolltap_orchestrator::common::shell::word;
use rolltap_orchestrator::demo;
use rolltap_orchestrator::job::Progress;

use crate::{Outcome, terminal};

/// Run a whole job on embedded parts only, in a minute
///
/// A simulated model with a scripted policy works at two bundled tasks, with four samples each. It uses the terminal
/// agent in the local environment. Some samples fail, as with a real policy. The demo needs no GPU, no Docker and no
/// network.
#[derive(Args)]
#[command(after_help = "The output ends with the next commands.")]
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
    let summary = terminal::summary(&report, &std::io::stdout());
    terminal::say(&summary);
    if report.is_clean() {
        terminal::say(next_steps(&word(&summary.job_dir().to_string_lossy())));
    }
    Ok(if report.is_clean() { Outcome::Done } else { Outcome::Failed })
}

/// Returns the commands that continue from a demo.
fn next_steps(job: &str) -> String {
    format!(
        "\nnext steps:\n  \
         rolltap check {job}\n  \
         rolltap export {job} --format jsonl --advantage grpo -o train.jsonl\n  \
         rolltap run -p TASKS -a terminal --upstream http://127.0.0.1:8000   (your tasks, your vLLM)"
    )
}

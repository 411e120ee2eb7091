//! `rolltap tasks`

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use rolltap_orchestrator::environment::EnvironmentKind;
use rolltap_orchestrator::job::Progress;
use rolltap_orchestrator::job::gate::GateSettings;
use rolltap_orchestrator::job::tasks_check::inspect_all;
use rolltap_rollout::rollout::RewardRule;

use crate::{Outcome, terminal};

/// Work on Harbor task directories
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(Check),
}

/// Check task directories, and list every problem with file and line
///
/// Each task is parsed, and its files are examined. A variable of this host that the task needs and that is not set is
/// a warning, as is content that Harbor ignores. With --oracle and --nop, agents also work at each valid task, and a
/// task fails if the solution does not earn the reward, or if doing nothing earns it.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
struct Check {
    /// Check this task directory, or all tasks in this directory.
    #[arg(value_name = "DIR", required = true)]
    dir: Vec<PathBuf>,
    /// Print the result as one JSON object on standard output.
    #[arg(long)]
    json: bool,
    /// Run the solution of each task. Its reward must be 1.
    #[arg(long, help_heading = GATE)]
    oracle: bool,
    /// Run each task without any action. Its reward must be below 1.
    #[arg(long, help_heading = GATE)]
    nop: bool,
    /// Run this many trials at the same time.
    #[arg(short = 'n', long, visible_alias = "n-concurrent", value_name = "NUMBER", default_value = "4", help_heading = GATE)]
    concurrency: NonZeroUsize,
    /// Choose where trials run: docker or local.
    #[arg(short, long = "env", visible_alias = "environment", value_name = "ENVIRONMENT", default_value = "docker", help_heading = GATE)]
    environment: EnvironmentKind,
    /// Compare the number that this rule makes of the rewards of a trial. [default: the reward named `reward`, or the
    /// only one]
    ///
    /// The rule is that of `rolltap run --reward`.
    #[arg(long, value_name = "RULE", help_heading = GATE)]
    reward: Option<RewardRule>,
    /// Create the directory of the job in this directory.
    #[arg(short = 'o', long, env = "ROLLTAP_JOBS_DIR", value_name = "DIR", default_value = "jobs", help_heading = GATE)]
    jobs_dir: PathBuf,
    /// Hide the progress of running trials.
    #[arg(short, long, help_heading = GATE)]
    quiet: bool,
}

const GATE: &str = "Gate";

const AFTER_HELP: &str = "\
Examples:
  rolltap tasks check tasks
  rolltap tasks check tasks/hello-world --oracle --nop
  rolltap tasks check tasks --json | jq '.tasks[] | select(.valid | not)'

Exit codes: 0 no errors, maybe warnings; 1 a task has an error or fails the gate; 2 there is no task, or
the gate cannot run.";

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let Command::Check(check) = arguments.command;
    let mut report = inspect_all(&check.dir)?;
    if check.oracle || check.nop {
        let settings = GateSettings {
            oracle: check.oracle,
            nop: check.nop,
            environment: check.environment,
            concurrency: check.concurrency,
            jobs_dir: check.jobs_dir,
            job_name: None,
            reward: check.reward,
        };
        let progress = Progress::for_stderr(check.quiet || terminal::logs_json());
        Box::pin(report.run_gate(settings, progress, terminal::cancelled_by_signals()?)).await?;
    }
    if check.json {
        terminal::say(report.to_json())
    } else {
        terminal::say(&report)
    }
    Ok(if report.is_clean() { Outcome::Done } else { Outcome::Failed })
}

//! `rolltap regrade`

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use rolltap_orchestrator::environment::EnvironmentKind;
use rolltap_orchestrator::job::regrade::{AdminAccess, RegradeSettings, RegradeSummary, regrade};
use rolltap_rollout::ids::RewardVersion;

use crate::connection_options::admin_tls;
use crate::option_values::reward_version;
use crate::token_file::read_token;
use crate::{Outcome, terminal};

/// Run the tests of a job again, without its agents, and record the new rewards beside the old ones
///
/// Each completed trial is verified by the tests of its task as they are now. Tests with a separate environment get
/// the artifacts that were collected, in a fresh environment. Tests that run in the agent's environment get a copy of
/// its container, if the job kept it (`delete: false`). The new rewards are a version. `rolltap export`, `rolltap check`
/// and the feed take the version by its name. The job, its rewards and its captures do not change.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Verify the trials of the job in this directory again.
    #[arg(value_name = "JOB_DIR")]
    job_dir: PathBuf,
    /// Give the new rewards the name of this version. [default: regrade-1, regrade-2, …]
    ///
    /// A version that exists is completed: trials with a reward of the version are not verified again. Without the
    /// flag, a version whose run was interrupted is completed.
    #[arg(long, value_name = "VERSION", value_parser = reward_version)]
    name: Option<RewardVersion>,
    /// Take the tests from this task directory, or from all tasks in this directory. Repeat the flag for more.
    /// [default: the tasks of the job]
    ///
    /// Tasks and trials belong together by the name of the task.
    #[arg(short, long, value_name = "PATH")]
    path: Vec<PathBuf>,
    /// Verify only trials of this task, by its name or a pattern like `sort-*`. Repeat the flag for more.
    ///
    /// In the version, all other trials have the reward that they had.
    #[arg(short, long, value_name = "NAME")]
    task: Vec<String>,
    /// Verify only trials without a valid reward, whose tests failed or did not run.
    #[arg(long)]
    failed_only: bool,
    /// Verify this many trials at the same time. [default: that of the job]
    #[arg(short = 'n', long, visible_alias = "n-concurrent", value_name = "NUMBER")]
    concurrency: Option<NonZeroUsize>,
    /// Choose where the tests run: docker or local. [default: the environment of the job]
    #[arg(short, long = "env", visible_alias = "environment", value_name = "ENVIRONMENT")]
    environment: Option<EnvironmentKind>,
    /// Record the version at the running proxy with this admin plane. [default: the --proxy of the job, or the captures
    /// in its directory]
    #[arg(long, value_name = "ADMIN_URL")]
    proxy: Option<String>,
    /// Send the token in this file to the admin plane of the proxy. It needs the role reward.
    #[arg(long, value_name = "FILE")]
    proxy_token_file: Option<PathBuf>,
    /// Trust the authorities in this PEM file for an admin plane with https. Repeat the flag for several files.
    /// [default: those of the system]
    #[arg(long, value_name = "FILE")]
    proxy_ca: Vec<PathBuf>,
    /// Identify the command to that admin plane by the certificate in this PEM file.
    #[arg(long, value_name = "FILE", requires = "proxy_client_key")]
    proxy_client_cert: Option<PathBuf>,
    /// Read the private key of --proxy-client-cert from this PEM file.
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert")]
    proxy_client_key: Option<PathBuf>,
    /// Hide the progress.
    #[arg(short, long)]
    quiet: bool,
}

const AFTER_HELP: &str = "\
Examples:
  rolltap regrade jobs/2026-11-21__03-42-00
  rolltap regrade jobs/2026-11-21__03-42-00 -p fixed-tasks --task 'sort-*' --name fixed-sort
  rolltap regrade jobs/2026-11-21__03-42-00 --failed-only -n 16
  rolltap export jobs/2026-11-21__03-42-00 --reward-version regrade-1 --format jsonl -o train.jsonl

Exit codes: 0 if each chosen trial has a reward of the version; 1 if a trial cannot be verified again, or a
problem occurred; 2 for wrong usage or configuration, before any tests run.";

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let token = arguments.proxy_token_file.as_deref().map(read_token).transpose()?;
    let tls = admin_tls(arguments.proxy_ca, arguments.proxy_client_cert, arguments.proxy_client_key)?;
    let settings = RegradeSettings {
        job_dir: arguments.job_dir,
        version: arguments.name,
        paths: arguments.path,
        tasks: arguments.task,
        failed_only: arguments.failed_only,
        concurrency: arguments.concurrency,
        environment: arguments.environment,
        admin: Some(AdminAccess { url: arguments.proxy, token, tls }),
        quiet: arguments.quiet || terminal::logs_json(),
    };
    let report = regrade(settings, terminal::cancelled_by_signals()?).await?;
    terminal::say(RegradeSummary(&report));
    Ok(if report.is_clean() { Outcome::Done } else { Outcome::Failed })
}

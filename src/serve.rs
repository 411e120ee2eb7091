//! `rolltap serve`

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};
use rolltap_orchestrator::job::service::{DEFAULT_NAME, Pace, ServiceAddresses, ServiceSettings, serve};
use rolltap_orchestrator::job::{JobSettings, Progress, ProxyChoice};
use rolltap_proxy::PAGES_PATH;
use rolltap_viewer::{Collection, pages_below};
use sd_notify::NotifyState;

use crate::connection_options::warn_of_plain_text;
use crate::option_values::one_or_more;
use crate::proxy::notify;
use crate::terminal::StopSignals;
use crate::token_file::read_token;
use crate::{Outcome, run, terminal};

/// The arguments of `rolltap run` without those that a service does not have, and its own.
pub(crate) struct Arguments {
    pub(crate) run: run::Arguments,
    service: Options,
}

/// The options that `rolltap run` lacks.
#[derive(Args)]
#[command(next_help_heading = "Service")]
struct Options {
    /// Take submissions, and serve rollouts and pages, at this address. Agents must not reach it.
    #[arg(long, env = "ROLLTAP_ADMIN", value_name = "ADDRESS", default_value = "127.0.0.1:7071")]
    admin: SocketAddr,
    /// Require the token in this file from clients of the admin plane (Authorization: Bearer …).
    ///
    /// The token has all roles, and at least 16 characters. An address off loopback requires it.
    #[arg(long, env = "ROLLTAP_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Accept the tokens whose hashes are in this TOML file too, each with its roles.
    ///
    /// `rolltap admin-token` makes a token and its entry. Submitting and cancelling need the role `open`.
    #[arg(long, env = "ROLLTAP_ADMIN_TOKENS", value_name = "FILE", requires = "admin_token_file")]
    admin_tokens: Option<PathBuf>,
    /// Stop at the end of standard input, as at SIGTERM.
    ///
    /// The program that starts the service gives it a pipe as standard input, and holds the other end. When that program
    /// ends, even by SIGKILL, the pipe closes and the service stops.
    #[arg(long)]
    until_stdin_ends: bool,
    /// Refuse submissions while this many samples wait. A refused submission is answered 429.
    #[arg(long, value_name = "NUMBER", default_value = "10000", value_parser = one_or_more::<NonZeroU64>,
          allow_negative_numbers = true)]
    max_queued: NonZeroU64,
    /// Give the trainer no group that is older than this many policy versions. It requires --groups-per-step.
    ///
    /// New groups wait while those that have begun fill the steps of the trainer up to this age. A complete group waits if
    /// an older one must be taken first.
    #[arg(long, value_name = "VERSIONS", requires = "groups_per_step")]
    max_staleness: Option<u32>,
    /// The number of groups that the trainer takes per policy version, for --max-staleness.
    #[arg(long, value_name = "NUMBER", value_parser = one_or_more::<NonZeroU64>, requires = "max_staleness",
          allow_negative_numbers = true)]
    groups_per_step: Option<NonZeroU64>,
    /// Drop complete groups whose valid rewards are all equal: readers of closed groups do not get them, and the next
    /// group takes their place.
    #[arg(long)]
    drop_uniform_groups: bool,
}

/// The options of `rolltap run` that have no meaning for a service.
const REFUSED: [&str; 15] = [
    "resume",
    "dry_run",
    "print_config",
    "yes",
    "rows",
    "json",
    "quiet",
    "messages",
    "proxy",
    "proxy_token_file",
    "proxy_ca",
    "proxy_client_cert",
    "proxy_client_key",
    "harbor_env",
    "harbor_env_kwarg",
];

const ABOUT: &str = "Sample the groups that a trainer submits, in one process with the proxy and the feed";

const LONG_ABOUT: &str = "Sample the groups that a trainer submits, in one process with the proxy and the feed

A trainer sends groups to POST /v1/submissions (or runs `rolltap submit`), and reads them from GET /v1/rollouts once \
                          they are closed. The configuration is that of `rolltap run`: its agents and settings hold for all \
                          submissions, and its tasks are those that submissions name. The queue is durable: a service that is \
                          killed and started again continues, and runs no attempt twice.";

const AFTER_HELP: &str = "\
Examples:
  rolltap serve -p tasks -a terminal --upstream http://127.0.0.1:8000 -n 16
  rolltap serve --config job.yaml --admin 10.0.0.5:7071 --admin-token-file token
then, from the trainer:
  rolltap submit hello-world -k 8 --wait
  curl -s http://127.0.0.1:7071/v1/submissions -H 'content-type: application/json' \\
    -d '{\"task\": \"hello-world\", \"samples\": 8}'

Ctrl-C or SIGTERM stops the service: running trials are stopped, and begin again when the service starts.

Exit codes: 0 after a signal; 1 if the service stopped with a problem; 2 for wrong usage or configuration,
or if no further trial can begin.";

impl Args for Arguments {
    fn augment_args(command: Command) -> Command {
        let command = Options::augment_args(run::Arguments::augment_args(command));
        let hidden = |arg: Arg| if is_refused(arg.get_id().as_str()) { arg.hide(true) } else { arg };
        let of_service = |help: &'static str| move |arg: Arg| arg.help(help).long_help(help);
        command
            .mut_args(hidden)
            // A service may be started without tasks, so this replaces an option that is required.
            .mut_arg("path", |_| path())
            .mut_arg("samples", of_service(
                "Run this many samples of each group whose submission gives no number. [default: 1]",
            ))
            .mut_arg("job_name", of_service(
                "Give the service and its directory this name. [default: service]. If the directory exists, the service \
                 continues its queue.",
            ))
            .about(ABOUT)
            .long_about(LONG_ABOUT)
            .after_help(AFTER_HELP)
            .after_long_help(AFTER_HELP)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn is_refused(id: &str) -> bool {
    REFUSED.contains(&id)
}

fn path() -> Arg {
    let help = "Let submissions name this Harbor task directory, or all tasks in this directory. Repeat the flag for more. \
                Submissions may give other directories as task_path.";
    let path = Arg::new("path")
        .display_order(0)
        .short('p')
        .long("path")
        .value_name("PATH")
        .help(help)
        .long_help(help);
    path.action(ArgAction::Append).value_parser(value_parser!(PathBuf))
}

impl FromArgMatches for Arguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let is_given = |id: &&&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        if let Some(id) = REFUSED.iter().find(is_given) {
            let flag = id.replace('_', "-");
            let text = format!("rolltap serve has no --{flag}, which is an option of rolltap run\n");
            return Err(Error::raw(ErrorKind::UnknownArgument, text));
        }
        let run = run::Arguments::from_arg_matches(matches)?;
        Ok(Self { run, service: Options::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

pub(crate) async fn run(Arguments { run, service }: Arguments) -> anyhow::Result<Outcome> {
    let signals = StopSignals::listen()?;
    if service.until_stdin_ends {
        signals.watch_input()?;
    }
    let cancellation = terminal::cancelled_by(signals);
    let settings = run::job_settings(run).await?;
    let name = settings.job_name.as_deref().unwrap_or(DEFAULT_NAME);
    let pages =
        pages_below(PAGES_PATH, Collection::of_job_dir(&settings.jobs_dir.join(name)), tokenizer(&settings));
    if !service.admin.ip().is_loopback() {
        warn_of_plain_text(&format!("--admin {}", service.admin));
    }
    let service = ServiceSettings {
        admin: service.admin,
        admin_token: service.admin_token_file.as_deref().map(read_token).transpose()?,
        admin_tokens: service.admin_tokens,
        pages: Some(pages),
        max_queued: service.max_queued,
        pace: service.max_staleness.zip(service.groups_per_step).map(pace),
        drop_uniform: service.drop_uniform_groups,
    };
    let progress = Progress::for_stderr(true);
    let report = serve(settings, service, progress, cancellation, tell_start).await;
    notify(NotifyState::Stopping);
    let report = report?;
    if report.unfinished > 0 {
        let unfinished = report.unfinished;
        terminal::note(format!("{unfinished} submissions have not ended; the next start continues them"));
    }
    for problem in &report.problems {
        terminal::note(format!("warning: {problem}"));
    }
    Ok(if report.problems.is_empty() { Outcome::Done } else { Outcome::Failed })
}

fn tell_start(service: &ServiceAddresses) {
    let ServiceAddresses { dir, admin, continued } = service;
    terminal::say(format_args!("admin plane listens on http://{admin}"));
    terminal::say(format_args!("viewer is at http://{admin}{PAGES_PATH}"));
    terminal::say(format_args!("trials and captures are in {}", dir.display()));
    if *continued > 0 {
        terminal::say(format_args!("{continued} submissions of an earlier run continue"));
    }
    terminal::say("takes submissions");
    notify(NotifyState::Ready);
}

fn pace((max_staleness, groups_per_step): (u32, NonZeroU64)) -> Pace {
    Pace { max_staleness, groups_per_step }
}

fn tokenizer(settings: &JobSettings) -> Option<PathBuf> {
    match &settings.proxy {
        ProxyChoice::Embedded { upstreams, .. } => upstreams.render.tokenizer.clone(),
        ProxyChoice::External { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refused_option_is_an_option_of_run() {
        run::assert_options(&REFUSED);
    }
}

//! `rolltap resume`: the command `rolltap run --resume` with its options that do not change results.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

use crate::{Outcome, run};

/// The arguments of `rolltap run`, with the job directory as the only positional argument.
pub(crate) struct Arguments(run::Arguments);

/// The options that may differ from the job's. The help of `rolltap resume` lists no other. Any other option is parsed
/// and compared with the job's configuration, so that an error has both values.
const SHOWN: [&str; 28] = [
    "resume",
    "concurrency",
    "n_concurrent_per_task",
    "max_empty_trials",
    "quiet",
    "rows",
    "debug",
    "env_file",
    "json",
    "harbor_python",
    "upstream",
    "upstream_api_key",
    "upstream_ca",
    "upstream_client_cert",
    "upstream_client_key",
    "tls_cert",
    "tls_key",
    "proxy",
    "proxy_token_file",
    "listen",
    "public_url",
    "no_preflight",
    "cluster",
    "cluster_name",
    "cluster_replicas",
    "cluster_credentials",
    "cluster_ca",
    "cluster_objects",
];

const ABOUT: &str = "Resume a job that was interrupted, with its own configuration";

const LONG_ABOUT: &str = "Resume a job that was interrupted, with its own configuration

Completed trials stay as they are. Trials that were running or cancelled get another attempt, and trials that did not
begin are run. The options here do not change results, and may differ from those of the job. An option of `rolltap run`
that would change results is refused, with its value and the job's.";

const AFTER_HELP: &str = "\
Examples:
  rolltap resume jobs/2026-11-21__03-42-00
  rolltap resume jobs/2026-11-21__03-42-00 -n 2
  rolltap resume jobs/2026-11-21__03-42-00 --upstream http://other:8000

`rolltap run --resume JOB_DIR` is the same command.

Exit codes: 0 for success; 1 if a trial failed for a reason that is not the agent's; 2 for wrong usage
or configuration, before any work starts.";

impl Args for Arguments {
    fn augment_args(command: Command) -> Command {
        let command = run::Arguments::augment_args(command);
        let hidden =
            |arg: clap::Arg| if SHOWN.contains(&arg.get_id().as_str()) { arg } else { arg.hide(true) };
        let job_dir = |arg: clap::Arg| {
            let help = "Resume the job in this directory.";
            arg.long(None::<&'static str>).index(1).required(true).help(help).long_help(help)
        };
        command
            .mut_args(hidden)
            .mut_arg("resume", job_dir)
            .about(ABOUT)
            .long_about(LONG_ABOUT)
            .after_help(AFTER_HELP)
            .after_long_help(AFTER_HELP)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Arguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        run::Arguments::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

pub(crate) async fn run(Arguments(arguments): Arguments) -> anyhow::Result<Outcome> {
    Box::pin(run::run(arguments)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shown_option_is_an_option_of_run() {
        run::assert_options(&SHOWN);
    }
}

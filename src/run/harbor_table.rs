//! Every option of `harbor run` 0.25, and the option of `rolltap run` in its place. The documentation and the errors
//! about options that rolltap lacks come from this table. A test compares it with the installed package.

/// An option of `harbor run`.
#[derive(Debug)]
pub(crate) struct HarborOption {
    /// Its names, with dashes.
    pub(crate) names: &'static [&'static str],
    pub(crate) here: Here,
}

/// The counterpart of an option of Harbor.
#[derive(Debug)]
pub(crate) enum Here {
    /// `rolltap run` has the option, by at least its long names.
    Same,
    /// `rolltap run` has the option, with a difference.
    Differs(
        #[cfg_attr(
            not(test),
            expect(dead_code, reason = "the page of options, which a test writes, has it")
        )]
        &'static str,
    ),
    /// `rolltap run` lacks the option. The text names the remedy.
    Lacks(&'static str),
}

use Here::{Differs, Lacks, Same};

const HUB: &str = "Harbor Hub is not used. Run the job here";
const HUB_SECRETS: &str =
    "Jobs do not run on Harbor Hub. Give secrets by --env-file, --agent-env or --verifier-env";
const SHARE: &str = "Jobs are not uploaded. Leave the option out";
const USER: &str = "No user is simulated. Run the task with `harbor run`";
const NETWORK: &str = "Name the host in `allowed_hosts` of the task";
const LOGS: &str = "All logs are downloaded. Delete the files that you do not need";
const VERIFIER: &str = "The verifier is tests/test.sh of the task. Call your program from it";
const EXPORT: &str = "Export afterwards: `rolltap export jobs/NAME --format FORMAT`";
const PLUGIN: &str = "There are no plugins. `--json` writes each event of the job as a line of JSON";
const LIMITS: &str = "CPU and memory are upper limits. Leave the option out";
const POLICY: &str = "There are no GPUs or TPUs in environments. Run the job with `harbor run`";

const fn option(names: &'static [&'static str], here: Here) -> HarborOption {
    HarborOption { names, here }
}

/// All options, in the order of `harbor run --help`, with the hidden ones.
pub(crate) const OPTIONS: &[HarborOption] = &[
    option(&["-c", "--config"], Differs("one local file; flags override it")),
    option(
        &["--diff"],
        Lacks("Run the command again: a job of the same name keeps its finished trials and runs the rest"),
    ),
    option(&["--print-config"], Differs("JSON, with the section `rolltap`")),
    option(&["--job-name"], Same),
    option(&["-o", "--jobs-dir"], Same),
    option(&["-k", "--n-attempts"], Differs("the samples form one group; at most 100000 trials in a job")),
    option(&["--timeout-multiplier"], Same),
    option(&["--agent-timeout-multiplier"], Same),
    option(&["--verifier-timeout-multiplier"], Same),
    option(&["--agent-setup-timeout-multiplier"], Same),
    option(&["--environment-build-timeout-multiplier"], Same),
    option(&["-q", "--quiet", "--silent"], Same),
    option(&["--debug"], Differs("it has the level of `-vv`")),
    option(&["-n", "--n-concurrent"], Same),
    option(&["--n-concurrent-agents"], Same),
    option(
        &["-r", "--max-retries"],
        Differs("an agent's own failure is never retried, and the failed attempt stays"),
    ),
    option(&["--retry-include"], Same),
    option(&["--retry-exclude"], Same),
    option(
        &["-a", "--agent"],
        Differs(
            "`rolltap agents` lists the agents; a definition file declares your own; with `-e harbor`, Harbor's agents",
        ),
    ),
    option(&["--agent-import-path"], Lacks("Write `-e harbor -a module.path:ClassName`")),
    option(
        &["-m", "--model"],
        Differs(
            "the name at the upstream, with or without a provider before it; the only served model is the default",
        ),
    ),
    option(&["--base-url"], Differs("the vLLM server, as a second name of `--upstream`")),
    option(&["--api-key-name"], Lacks("Set ROLLTAP_UPSTREAM_API_KEY, or give `--upstream-api-key KEY`")),
    option(&["--api-format"], Lacks("Each agent has its own API. Leave the option out")),
    option(
        &["--sm", "--skip-model-parsing-and-provider-mapping"],
        Lacks("The name of the model is used as it is. Leave the option out"),
    ),
    option(&["--ak", "--agent-kwarg"], Same),
    option(
        &["--effort"],
        Lacks(
            "Write `--agent-kwarg reasoning_effort=LEVEL`, or `--sampling '{\"reasoning_effort\": \"LEVEL\"}'`",
        ),
    ),
    option(&["--allow-agent-host"], Lacks(NETWORK)),
    option(
        &["--resume-trajectory"],
        Lacks("Each step of a task is a conversation of its own. Run the task with `harbor run`"),
    ),
    option(&["--load-trajectory"], Lacks("Put the conversation into trajectory.json of the task")),
    option(&["--ae", "--agent-env"], Same),
    option(&["--agent-include-logs"], Lacks(LOGS)),
    option(&["--agent-exclude-logs"], Lacks(LOGS)),
    option(&["--mcp-config"], Same),
    option(&["--skill", "--skills"], Differs("directories of this host only")),
    option(&["--user-agent"], Lacks(USER)),
    option(&["--user-model"], Lacks(USER)),
    option(&["--uk", "--user-agent-kwarg"], Lacks(USER)),
    option(&["--user-persona-path"], Lacks(USER)),
    option(&["--user-prompt-template-path"], Lacks(USER)),
    option(&["--bridge"], Lacks(USER)),
    option(&["--bridge-prompt-path"], Lacks(USER)),
    option(&["--bk", "--bridge-kwarg"], Lacks(USER)),
    option(
        &["-e", "--env"],
        Differs(
            "docker, local or harbor; the other environments of Harbor are `-e harbor --harbor-env NAME`",
        ),
    ),
    option(&["--allow-environment-host"], Lacks(NETWORK)),
    option(&["--environment-import-path"], Lacks("Write `-e harbor --harbor-env module.path:ClassName`")),
    option(&["--force-build", "--no-force-build"], Same),
    option(&["--delete", "--no-delete"], Differs("the container stays stopped")),
    option(&["--stream", "--no-stream"], Lacks("`--json` writes each event of the job when it happens")),
    option(&["--cpus"], Lacks(LIMITS)),
    option(&["--memory"], Lacks(LIMITS)),
    option(&["--override-cpus"], Differs("a number with a fraction too")),
    option(&["--override-memory-mb"], Same),
    option(&["--override-storage-mb"], Same),
    option(&["--override-gpus"], Lacks(POLICY)),
    option(&["--override-tpu"], Lacks(POLICY)),
    option(&["--mounts", "--mounts-json"], Same),
    option(
        &["--extra-docker-compose"],
        Lacks("Put the services into environment/docker-compose.yaml of the task"),
    ),
    option(&["--ek", "--environment-kwarg"], Differs("of the environment of Harbor, for `-e harbor`")),
    option(&["-y", "--yes"], Differs("without effect, because rolltap asks nothing")),
    option(&["--env-file"], Differs("a `$` without braces needs single quotes around the value")),
    option(&["--ve", "--verifier-env"], Same),
    option(&["--verifier-include-logs"], Lacks(LOGS)),
    option(&["--verifier-exclude-logs"], Lacks(LOGS)),
    option(&["--allow-verifier-host"], Lacks(NETWORK)),
    option(&["--verifier"], Lacks(VERIFIER)),
    option(&["--verifier-import-path"], Lacks(VERIFIER)),
    option(&["--verifier-kwarg"], Lacks(VERIFIER)),
    option(&["--disable-verification", "--enable-verification"], Same),
    option(
        &["--install-only"],
        Lacks("An agent is installed once, when a job first uses it. Leave the option out"),
    ),
    option(&["-p", "--path"], Differs("repeatable")),
    option(&["--extra-instruction-path"], Same),
    option(&["--extra-instruction"], Same),
    option(&["--task-git-url"], Same),
    option(&["--task-git-commit"], Differs("a branch or a tag too")),
    option(
        &["-d", "--dataset"],
        Differs("a directory, a git URL or a registry file too; a name needs --registry-path or --repo"),
    ),
    option(&["--registry-url"], Lacks("Download the registry file, and give it by `--registry-path FILE`")),
    option(&["--registry-path"], Same),
    option(&["--repo"], Same),
    option(&["-t", "--task"], Differs("the name of a task's directory in --dataset or --path")),
    option(&["-i", "--include-task-name"], Same),
    option(&["-x", "--exclude-task-name"], Same),
    option(&["-l", "--n-tasks"], Same),
    option(&["--export-traces", "--no-export-traces"], Lacks(EXPORT)),
    option(&["--export-sharegpt", "--no-export-sharegpt"], Lacks(EXPORT)),
    option(&["--export-episodes"], Lacks(EXPORT)),
    option(&["--export-push", "--no-export-push"], Lacks(EXPORT)),
    option(&["--export-repo"], Lacks(EXPORT)),
    option(&["--export-instruction-metadata", "--no-export-instruction-metadata"], Lacks(EXPORT)),
    option(&["--export-verifier-metadata", "--no-export-verifier-metadata"], Lacks(EXPORT)),
    option(&["--artifact"], Same),
    option(&["--plugin"], Lacks(PLUGIN)),
    option(&["--pk", "--plugin-kwarg"], Lacks(PLUGIN)),
    option(&["--upload"], Lacks(SHARE)),
    option(&["--launch"], Lacks(HUB)),
    option(
        &["--skip-credential-checks"],
        Lacks("There is no such check. `--no-preflight` skips the first call to the upstream"),
    ),
    option(&["--dry-run"], Differs("it shows the plan: tasks, trials, images to build, missing variables")),
    option(&["--use-static-ip"], Lacks(HUB)),
    option(&["--credential-mode"], Lacks(HUB_SECRETS)),
    option(&["--one-off-secret"], Lacks(HUB_SECRETS)),
    option(&["--stored-secret"], Lacks(HUB_SECRETS)),
    option(&["--no-secrets"], Lacks(HUB_SECRETS)),
    option(&["--registry-secret"], Lacks("Log in with `docker login` on this host")),
    option(&["--public", "--private"], Lacks(SHARE)),
    option(&["--share"], Lacks(SHARE)),
    option(&["--share-user"], Lacks(SHARE)),
    option(&["--org"], Lacks(HUB)),
];

/// Returns the remedy for an option of Harbor that `rolltap run` lacks. `argument` may have a value after `=`.
pub(crate) fn remedy(argument: &str) -> Option<&'static str> {
    let name = argument.split_once('=').map_or(argument, |(name, _)| name);
    let option = OPTIONS.iter().find(|option| option.names.contains(&name))?;
    match option.here {
        Lacks(remedy) => Some(remedy),
        Same | Differs(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Args, Command};

    use super::*;

    /// Returns the names of all options of `rolltap run`, with dashes.
    fn own() -> BTreeSet<String> {
        let command = crate::run::Arguments::augment_args(Command::new("run"));
        let arguments = command.get_arguments().collect::<Vec<_>>();
        let long = arguments
            .iter()
            .flat_map(|argument| argument.get_long_and_visible_aliases().into_iter().flatten());
        let short = arguments
            .iter()
            .flat_map(|argument| argument.get_short_and_visible_aliases().into_iter().flatten());
        long.map(|name| format!("--{name}")).chain(short.map(|name| format!("-{name}"))).collect()
    }

    #[test]
    fn the_table_and_the_command_line_agree() {
        let own = own();
        for option in OPTIONS {
            let missing: Vec<_> = option.names.iter().filter(|name| !own.contains(**name)).collect();
            match option.here {
                Same | Differs(_) => assert!(missing.is_empty(), "{option:?}: rolltap run lacks {missing:?}"),
                Lacks(_) => {
                    assert_eq!(missing.len(), option.names.len(), "{option:?}: rolltap run has it now")
                }
            }
        }
    }

    #[test]
    fn an_option_that_is_missing_here_has_a_remedy() {
        assert!(remedy("--launch").unwrap().contains("Harbor Hub"));
        assert!(remedy("--effort=high").unwrap().contains("--agent-kwarg"));
        assert_eq!((remedy("--job-name"), remedy("--lunch")), (None, None));
    }
}

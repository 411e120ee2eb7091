//! Parses the command line. Options of Harbor that rolltap lacks get an error with the remedy.

use anyhow::anyhow;
use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::{Cli, Command, run};

/// Parses the command line, and sets the variables of `--env-file`. The process has no other thread yet.
///
/// Exits with code 2 at wrong usage, and with code 0 after help.
///
/// # Errors
/// Fails for an option of Harbor without a counterpart, and for a file of variables that cannot be read.
pub(crate) fn parse() -> anyhow::Result<Cli> {
    let cli = parse_once()?;
    let file = match &cli.command {
        Command::Run(arguments) => &arguments.env_file,
        Command::Serve(arguments) => &arguments.run.env_file,
        _ => return Ok(cli),
    };
    let Some(file) = file else { return Ok(cli) };
    run::load_env_file(file)?;
    // The file may have variables that stand for options.
    parse_once()
}

fn parse_once() -> anyhow::Result<Cli> {
    Cli::try_parse().or_else(|error| match of_harbor(&error) {
        Some(text) => Err(anyhow!(text)),
        None => error.exit(),
    })
}

/// Returns the error for an option of `harbor run`, or a command of Harbor, that rolltap lacks, or `None`.
fn of_harbor(error: &clap::Error) -> Option<String> {
    let name = |kind| match error.get(kind) {
        Some(ContextValue::String(name)) => Some(name.as_str()),
        _ => None,
    };
    let more = "docs/reference/harbor-options.md has all of Harbor's options and commands";
    match error.kind() {
        ErrorKind::UnknownArgument if is_run() => {
            let name = name(ContextKind::InvalidArg)?;
            let remedy = run::remedy(name)?;
            Some(format!("rolltap run has no {name}, which is an option of harbor run. {remedy}.\n{more}"))
        }
        ErrorKind::InvalidSubcommand => {
            let name = name(ContextKind::InvalidSubcommand)?;
            let (_, remedy) = COMMANDS.iter().find(|(names, _)| names.contains(&name))?;
            Some(format!("rolltap has no command {name}, which is a command of harbor. {remedy}.\n{more}"))
        }
        _ => None,
    }
}

fn is_run() -> bool {
    std::env::args().skip(1).find(|word| !word.starts_with('-')).is_some_and(|word| word == "run")
}

/// Commands of Harbor, and what to use for them.
pub(crate) const COMMANDS: &[(&[&str], &str)] = &[
    (
        &["job", "jobs", "trial", "trials"],
        "`rolltap run` starts a job, and `rolltap run --resume JOB_DIR` resumes it",
    ),
    (
        &["task", "lint"],
        "`rolltap tasks check DIR` lists the problems of tasks, and with `--oracle` it runs their solutions and tests",
    ),
    (
        &[
            "dataset", "datasets", "download", "init", "add", "remove", "sync", "publish", "adapter",
            "adapters",
        ],
        "`harbor` makes and fetches datasets, and `rolltap run -p DIR` takes their directories",
    ),
    (&["traces", "sweeps"], "`rolltap export jobs/NAME --format FORMAT` makes files for trainers"),
    (&["cache"], "`rolltap clean` removes what dead runs left, and `rolltap clean --images` unused images"),
    (
        &["analyze", "upload", "hub", "auth", "admin", "plugins", "exec"],
        "rolltap has no counterpart: use `harbor`",
    ),
    (&["version"], "`rolltap --version` prints the version"),
];

//! `rolltap man`

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Command};
use clap_mangen::Man;
use rolltap_orchestrator::common::suggest::{did_you_mean, nearest};

use crate::{Outcome, terminal};

/// Print the manual page of rolltap or of one of its commands
#[derive(Args)]
#[command(after_help = "Examples:\n  rolltap man | man -l -\n  rolltap man run | man -l -\n  \
                        rolltap man --dir ~/.local/share/man/man1")]
pub(crate) struct Arguments {
    /// Print the page of this command. [default: the page of the program]
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Option<String>,
    /// Write the pages of the program and of all its commands to this directory, which must exist.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, mut program: Command) -> anyhow::Result<Outcome> {
    // Names like `rolltap run`, and the global options of each command.
    program.build();
    if let Some(dir) = &arguments.dir {
        let failed = || format!("cannot write manual pages to {}", dir.display());
        clap_mangen::generate_to(program, dir).with_context(failed)?;
        return Ok(Outcome::Done);
    }
    let page = match &arguments.command {
        None => program,
        Some(name) => {
            let Some(command) = program.find_subcommand(name) else {
                let names: Vec<_> = program.get_subcommands().map(Command::get_name).collect();
                let meant = did_you_mean(nearest(name, names.iter().copied()));
                bail!("{name:?} is not a command of rolltap{meant}; the commands are: {}", names.join(", "))
            };
            command.clone()
        }
    };
    let mut text = Vec::new();
    Man::new(page).render(&mut text).context("cannot make the manual page")?;
    terminal::say(String::from_utf8_lossy(&text).trim_end());
    Ok(Outcome::Done)
}

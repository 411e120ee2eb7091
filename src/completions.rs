//! `rolltap completions`

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use crate::Outcome;

/// Print a script that completes the commands and options of rolltap in a shell
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Print the script of this shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

const AFTER_HELP: &str = "\
Install the script for your shell:
  rolltap completions bash > ~/.local/share/bash-completion/completions/rolltap
  rolltap completions zsh > ~/.zfunc/_rolltap      # a directory of $fpath
  rolltap completions fish > ~/.config/fish/completions/rolltap.fish";

pub(crate) fn run(arguments: &Arguments, mut command: Command) -> Outcome {
    let mut script = Vec::new();
    generate(arguments.shell, &mut command, "rolltap", &mut script);
    crate::terminal::say(String::from_utf8_lossy(&script).trim_end());
    Outcome::Done
}

//! The `rolltap` command line: a page per subcommand. It reads what the user wrote and calls the crates; it decides
//! nothing by itself.
//!
//! Exit codes: 0 done; 1 done, but something failed that is not an agent's failure; 2 wrong usage or configuration,
//! before anything started.

mod agent;
mod agents;
mod check;
mod clean;
mod demo;
mod env;
mod export;
mod proxy;
mod proxy_file;
mod render_args;
mod run;
mod sim;
mod terminal;

use std::num::NonZero;
use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

/// Exact token ids and logprobs of unmodified agents on vLLM, joined with the verifier's reward into rollouts for any
/// trainer.
///
/// Point any agent's base URL at rolltap: it passes every call to vLLM untouched and keeps the token ids and logprobs
/// of each.
#[derive(Parser)]
#[command(version, after_help = AFTER_HELP, propagate_version = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Say more on standard error; twice for every detail. ROLLTAP_LOG takes a filter instead, like
    /// `rolltap_proxy=debug,info`.
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 900)]
    verbose: u8,
}

const AFTER_HELP: &str = "\
Try it:
  rolltap demo                          the whole path on embedded parts, in a minute
  rolltap run -p TASK -a terminal --upstream http://127.0.0.1:8000
  rolltap check jobs/NAME
  rolltap export jobs/NAME --format jsonl -o train.jsonl

Every option with [env: …] can be given in the environment too; what is on the command line wins.

Exit codes: 0 done; 1 done, but something failed that is not an agent's failure; 2 wrong usage or
configuration, before anything started.";

#[derive(Subcommand)]
enum Command {
    Demo(demo::Arguments),
    Proxy(Box<proxy::Arguments>),
    Run(Box<run::Arguments>),
    Agent(Box<agent::Arguments>),
    Agents(agents::Arguments),
    Check(check::Arguments),
    Export(Box<export::Arguments>),
    Clean(clean::Arguments),
    Env(env::Arguments),
    Sim(sim::Arguments),
}

impl Command {
    /// Whether what it does is of interest while it goes on.
    fn tells(&self) -> bool {
        matches!(self, Self::Proxy(_) | Self::Sim(_) | Self::Agent(_) | Self::Env(_))
    }
}

/// How a command that started came out.
enum Outcome {
    /// Exit code 0.
    Done,
    /// Exit code 1; what failed has been said.
    Failed,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    terminal::start_logging(cli.verbose, cli.command.tells());
    let result = match runtime() {
        Ok(runtime) => runtime.block_on(execute(cli.command)),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(1),
        Err(error) => {
            terminal::report(&error);
            ExitCode::from(2)
        }
    }
}

async fn execute(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Demo(arguments) => Box::pin(demo::run(arguments)).await,
        Command::Proxy(arguments) => Box::pin(proxy::run(*arguments)).await,
        Command::Run(arguments) => Box::pin(run::run(*arguments)).await,
        Command::Agent(arguments) => Box::pin(agent::run(*arguments)).await,
        Command::Agents(arguments) => agents::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Export(arguments) => Box::pin(export::run(*arguments)).await,
        Command::Clean(arguments) => Box::pin(clean::run(arguments)).await,
        Command::Env(arguments) => Box::pin(env::run(arguments)).await,
        Command::Sim(arguments) => Box::pin(sim::run(arguments)).await,
    }
}

/// On a single core one thread does all: a pool of workers would only hand work to itself, at a quarter more of processor
/// time for each token that passes.
fn runtime() -> std::io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut builder = if cores == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().build()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

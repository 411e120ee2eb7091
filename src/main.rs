//! The `rolltap` command line, with a file per subcommand. It parses options, calls the crates, and contains no logic
//! of its own.
//!
//! Exit codes: 0 for success; 1 for a failure that is not the agent's; 2 for wrong usage or configuration, before any
//! work starts.

mod admin_token;
mod agent;
mod agents;
mod check;
mod clean;
mod cluster_options;
mod command_line;
mod completions;
mod connection_options;
mod demo;
#[cfg(test)]
mod docs;
mod doctor;
mod env;
mod export;
mod health;
mod man;
mod objects;
mod option_values;
mod prompt_options;
mod proxy;
mod regrade;
mod resume;
mod run;
mod serve;
mod sim;
mod submissions;
mod submit;
mod tasks;
mod terminal;
mod token_file;
mod trace_options;
mod view;
mod worker;

use std::num::NonZero;
use std::process::ExitCode;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

use self::terminal::LogFormat;

/// Record exact token ids and logprobs of unmodified agents on vLLM, and join them with the reward into rollouts for
/// any trainer.
///
/// Set the base URL of any agent to rolltap. rolltap passes each call to vLLM unchanged, and records its token ids and
/// logprobs.
#[derive(Parser)]
#[command(version = env!("VERSION_WITH_COMMIT"), after_help = AFTER_HELP, propagate_version = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Log more to standard error; repeat the flag for all details. ROLLTAP_LOG takes a filter instead, like
    /// `rolltap_proxy=debug,info`.
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 900)]
    verbose: u8,
    /// Write the log, notes and errors on standard error as lines of text, or as one JSON object per line.
    #[arg(
        long,
        global = true,
        env = "ROLLTAP_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text",
        display_order = 901
    )]
    log_format: LogFormat,
}

const AFTER_HELP: &str = "\
Try it:
  rolltap demo                          a whole job on embedded parts, in a minute
  rolltap doctor --upstream http://127.0.0.1:8000
  rolltap tasks check TASKS
  rolltap run -p TASK -a terminal --upstream http://127.0.0.1:8000
  rolltap check jobs/NAME
  rolltap view jobs/NAME
  rolltap export jobs/NAME --format jsonl -o train.jsonl

Each option with [env: …] has an environment variable too. The command line overrides it.

Exit codes: 0 for success; 1 for a failure that is not the agent's; 2 for wrong usage or
configuration, before any work starts.";

#[derive(Subcommand)]
enum Command {
    Demo(demo::Arguments),
    Proxy(Box<proxy::Arguments>),
    Doctor(Box<doctor::Arguments>),
    AdminToken(admin_token::Arguments),
    Run(Box<run::Arguments>),
    Serve(Box<serve::Arguments>),
    Worker(Box<worker::Arguments>),
    Submit(Box<submit::Arguments>),
    Submissions(submissions::Arguments),
    Resume(Box<resume::Arguments>),
    Regrade(Box<regrade::Arguments>),
    Agent(Box<agent::Arguments>),
    Agents(agents::Arguments),
    Tasks(Box<tasks::Arguments>),
    Check(Box<check::Arguments>),
    Export(Box<export::Arguments>),
    View(view::Arguments),
    Clean(clean::Arguments),
    Health(health::Arguments),
    Env(env::Arguments),
    Sim(sim::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

impl Command {
    /// Whether the log of the command is useful at level info while it runs.
    fn tells(&self) -> bool {
        matches!(
            self,
            Self::Proxy(_) | Self::Sim(_) | Self::Agent(_) | Self::Env(_) | Self::Serve(_) | Self::Worker(_)
        )
    }

    /// Whether an option of the command turns on all details of the log.
    fn debugs(&self) -> bool {
        match self {
            Self::Run(arguments) => arguments.debug,
            Self::Serve(arguments) => arguments.run.debug,
            _ => false,
        }
    }
}

/// The result of a command that started.
enum Outcome {
    /// Exit code 0.
    Done,
    /// Exit code 1. The failure is already printed.
    Failed,
}

fn main() -> ExitCode {
    let cli = match command_line::parse() {
        Ok(cli) => cli,
        Err(error) => {
            terminal::report(&error);
            return ExitCode::from(2);
        }
    };
    let verbosity = if cli.command.debugs() { cli.verbose.max(2) } else { cli.verbose };
    terminal::start_logging(verbosity, cli.command.tells(), cli.log_format);
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
        Command::Doctor(arguments) => Box::pin(doctor::run(*arguments)).await,
        Command::AdminToken(arguments) => admin_token::run(&arguments),
        Command::Run(arguments) => Box::pin(run::run(*arguments)).await,
        Command::Serve(arguments) => Box::pin(serve::run(*arguments)).await,
        Command::Worker(arguments) => Box::pin(worker::run(*arguments)).await,
        Command::Submit(arguments) => Box::pin(submit::run(*arguments)).await,
        Command::Submissions(arguments) => Box::pin(submissions::run(arguments)).await,
        Command::Regrade(arguments) => Box::pin(regrade::run(*arguments)).await,
        Command::Resume(arguments) => Box::pin(resume::run(*arguments)).await,
        Command::Agent(arguments) => Box::pin(agent::run(*arguments)).await,
        Command::Agents(arguments) => agents::run(&arguments),
        Command::Tasks(arguments) => Box::pin(tasks::run(*arguments)).await,
        Command::Check(arguments) => Box::pin(check::run(*arguments)).await,
        Command::Export(arguments) => Box::pin(export::run(*arguments)).await,
        Command::View(arguments) => Box::pin(view::run(arguments)).await,
        Command::Clean(arguments) => Box::pin(clean::run(arguments)).await,
        Command::Health(arguments) => Box::pin(health::run(arguments)).await,
        Command::Env(arguments) => Box::pin(env::run(arguments)).await,
        Command::Sim(arguments) => Box::pin(sim::run(arguments)).await,
        Command::Completions(arguments) => Ok(completions::run(&arguments, Cli::command())),
        Command::Man(arguments) => man::run(&arguments, Cli::command()),
    }
}

/// Builds the runtime. On a single core it has one thread, because a pool of workers needs a quarter more processor
/// time per token there.
fn runtime() -> std::io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut builder = if cores == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

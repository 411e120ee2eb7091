//! `rolltap agent`

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use rolltap_orchestrator::agents::{AgentOptions, AgentSpec};
use rolltap_orchestrator::environment::EnvironmentKind;
use rolltap_orchestrator::standalone::{self, Report, Settings};
use serde_json::Value;

use crate::option_values::{option, variable};
use crate::{Outcome, terminal};

/// Let rolltap's terminal agent work at one task, against any OpenAI-compatible server
///
/// The command starts the environment of the task, and gives the agent a terminal in it and the instruction. It removes
/// the environment at the end. There is no proxy and no job. Requests go directly to the server, and no tokens are
/// recorded. The trajectory of the agent is in trajectory.json, in ATIF.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Work at the task in this Harbor task directory.
    #[arg(short, long, value_name = "PATH")]
    path: PathBuf,
    /// Call the model at this URL, including /v1.
    #[arg(long, env = "OPENAI_BASE_URL", value_name = "URL")]
    base_url: String,
    /// Use this model, by its name at the server.
    #[arg(short, long, env = "ROLLTAP_MODEL", value_name = "MODEL")]
    model: String,
    /// Send this API key to the server. Many servers need none.
    #[arg(long, env = "OPENAI_API_KEY", value_name = "KEY", hide_env_values = true, default_value = "none")]
    api_key: String,
    /// Choose where the agent works: docker (a container) or local (a temporary directory on this host).
    ///
    /// The environment local is no sandbox: the agent can do all that your user can do.
    #[arg(short, long = "env", visible_alias = "environment", value_name = "ENVIRONMENT", default_value_t = EnvironmentKind::Docker)]
    environment: EnvironmentKind,
    /// Run the tests of the task at the end, and print the reward.
    #[arg(long)]
    verify: bool,
    /// Stop after this many turns. [default: 100]
    #[arg(long, value_name = "NUMBER")]
    max_turns: Option<u32>,
    /// Stop after this many seconds. [default: the limit of the task]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// Set an option of the agent, like parser_name=xml or tmux=true. Repeat the flag for more. `rolltap agents
    /// terminal` lists the options.
    #[arg(long, visible_alias = "ak", value_name = "NAME=VALUE", value_parser = option)]
    agent_kwarg: Vec<(String, Value)>,
    /// Set an environment variable in the shell of the agent. Repeat the flag for more.
    #[arg(long, visible_alias = "ae", value_name = "NAME=VALUE", value_parser = variable)]
    agent_env: Vec<(String, String)>,
    /// Write the trajectory, the transcript and the logs of the tests to this directory. [default: agent-runs/ and the
    /// time]
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  rolltap agent -p tasks/hello-world --base-url http://127.0.0.1:8000/v1 -m qwen3 --verify
  rolltap agent -p tasks/hello-world -e local --base-url http://127.0.0.1:8000/v1 -m qwen3 \\
    --ak parser_name=xml --ak max_tokens=4096
  rolltap agent -p tasks/hello-world --base-url http://127.0.0.1:8000/v1 -m qwen3 --ak tmux=true
    and to watch it meanwhile:  docker exec -it CONTAINER tmux attach -r

Exit codes: 0 the agent declared the task complete, and with --verify there is a reward; 1 it stopped
for another reason, or there is no reward; 2 wrong usage, or no environment.";

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    // Harbor runs whole trials with its own agents, so there is no terminal for this agent.
    if arguments.environment == EnvironmentKind::Harbor {
        bail!("environment harbor runs Harbor's own agents; use `rolltap run -e harbor`");
    }
    let options = AgentOptions {
        max_turns: arguments.max_turns,
        kwargs: arguments.agent_kwarg.into_iter().collect(),
        env: arguments.agent_env.into_iter().collect(),
        ..AgentOptions::default()
    };
    let settings = Settings {
        task: arguments.path,
        environment: arguments.environment,
        agent: AgentSpec::new("terminal", options)?,
        base_url: arguments.base_url,
        api_key: arguments.api_key,
        model: arguments.model,
        logs: arguments.output,
        verify: arguments.verify,
        timeout: arguments.timeout.map(Duration::from_secs),
    };
    let cancellation = terminal::cancelled_by_signals()?;
    let report = standalone::run(settings, &cancellation.stop).await.context("the agent could not work")?;
    Ok(tell(&report))
}

fn tell(report: &Report) -> Outcome {
    let said = |name| report.metadata.get(name).map(Value::to_string).unwrap_or_default();
    if report.metadata.is_empty() {
        terminal::say("the agent did not work");
    } else {
        terminal::say(format!("stopped after {} turns: {}", said("turns"), said("stop").trim_matches('"')));
        terminal::say(format!("trajectory: {}", report.logs.join("trajectory.json").display()));
    }
    if let Some(failure) = &report.failure {
        terminal::say(format!("failed: {failure}"));
    }
    let judged = match &report.verdict {
        // Without --verify, no reward is expected.
        None => true,
        Some(Ok(rewards)) => {
            for (name, value) in &rewards.rewards {
                terminal::say(format!("{name}: {value}"));
            }
            true
        }
        Some(Err(error)) => {
            terminal::say(format!("no reward: {error}"));
            false
        }
    };
    let completed = report.metadata.get("completed") == Some(&Value::Bool(true));
    if completed && judged { Outcome::Done } else { Outcome::Failed }
}

//! `rolltap run`

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use rolltap_orchestrator::agents::{AgentOptions, AgentSpec};
use rolltap_orchestrator::environment::EnvironmentKind;
use rolltap_orchestrator::job::{JobAgent, JobSettings, Progress, ProxyChoice, Upstreams, run_job};
use rolltap_orchestrator::summary::Summary;
use rolltap_orchestrator::task::{self, Task};
use rolltap_orchestrator::trial::TimeoutPolicy;
use rolltap_proxy::Address;
use serde_json::{Map, Value};

use crate::prompts::PromptArguments;
use crate::proxy::read_token;
use crate::{Outcome, terminal};

/// Run an agent at Harbor tasks and collect rollouts with rewards
///
/// Each sample of each task is a trial: its environment is started, the agent works in it, its calls to the model are
/// captured, and the task's tests give the reward. Results, logs and rollouts are in the job's directory.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// A Harbor task directory, or a directory of such; repeat it for more.
    #[arg(short, long, required = true, value_name = "PATH")]
    path: Vec<PathBuf>,
    /// Samples per task; together they are the task's group.
    #[arg(short = 'k', long, visible_alias = "n-attempts", value_name = "NUMBER", default_value = "1")]
    samples: NonZeroU32,
    /// Trials at once.
    #[arg(short = 'n', long, visible_alias = "n-concurrent", value_name = "NUMBER", default_value = "4")]
    concurrency: NonZeroUsize,
    /// Where job directories lie.
    #[arg(short = 'o', long, env = "ROLLTAP_JOBS_DIR", value_name = "DIR", default_value = "jobs")]
    jobs_dir: PathBuf,
    /// The job's name and that of its directory, which must be new. [default: the time, like 2026-11-21__03-42-00]
    #[arg(long, value_name = "NAME")]
    job_name: Option<String>,
    /// Every time limit of every task is multiplied by this.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    timeout_multiplier: f64,
    /// No progress while trials run.
    #[arg(short, long)]
    quiet: bool,

    /// Who works at the tasks: oracle (the task's own solution), nop (nothing), command (any shell command), terminal
    /// (rolltap's own agent), an installed one like claude-code or codex (`rolltap agents` lists them), or a file that
    /// declares one of your own.
    #[arg(short, long, value_name = "AGENT", help_heading = AGENT)]
    agent: String,
    /// For agent command: the shell command to run inside each environment. The model's address and the trial's key are
    /// in the variables that agents read (OPENAI_BASE_URL, ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL, LLM_BASE_URL and
    /// the keys beside them), the instruction in ROLLTAP_INSTRUCTION and in the file ROLLTAP_INSTRUCTION_FILE.
    #[arg(long, value_name = "COMMAND", help_heading = AGENT)]
    agent_command: Option<String>,
    /// For agent terminal: turns after which it stops. [default: 100]
    #[arg(long, value_name = "NUMBER", help_heading = AGENT)]
    max_turns: Option<u32>,
    /// An option of an installed agent, and `version` of each; repeat it for more. `rolltap agents NAME` lists them.
    #[arg(long, visible_alias = "ak", value_name = "NAME=VALUE", value_parser = option, help_heading = AGENT)]
    agent_kwarg: Vec<(String, Value)>,
    /// An environment variable of an installed agent or of agent command; repeat it for more.
    #[arg(long, visible_alias = "ae", value_name = "NAME=VALUE", value_parser = variable, help_heading = AGENT)]
    agent_env: Vec<(String, String)>,
    /// Where trials run: docker (a container each), or local (a temporary directory on this host, which is no sandbox:
    /// the agent can do whatever you can).
    #[arg(short, long = "env", visible_alias = "environment", value_name = "ENVIRONMENT", default_value = "docker",
          help_heading = AGENT)]
    environment: EnvironmentKind,
    /// Build images although they are kept from before, and although a task with a Dockerfile names a ready one.
    #[arg(long, help_heading = AGENT)]
    force_build: bool,

    /// The model, as upstream names it. [default: the only one that upstream serves]
    #[arg(short, long, env = "ROLLTAP_MODEL", value_name = "MODEL", help_heading = MODEL)]
    model: Option<String>,
    /// A vLLM server, with or without /v1; repeat it for several replicas of one model. The proxy is embedded.
    #[arg(long, env = "ROLLTAP_UPSTREAM", value_name = "URL", value_delimiter = ',', help_heading = MODEL)]
    upstream: Vec<Address>,
    /// The API key that the upstreams want (vLLM's --api-key).
    #[arg(long, env = "ROLLTAP_UPSTREAM_API_KEY", value_name = "KEY", hide_env_values = true, help_heading = MODEL)]
    upstream_api_key: Option<String>,
    /// Admin plane of a running rolltap proxy, to be used instead of --upstream and an embedded one.
    #[arg(long, value_name = "ADMIN_URL", help_heading = MODEL)]
    proxy: Option<String>,
    /// File with the token that the admin plane of --proxy wants.
    #[arg(long, value_name = "FILE", requires = "proxy", help_heading = MODEL)]
    proxy_token_file: Option<PathBuf>,
    /// JSON object laid over every request of every trial, vLLM's own keys included.
    #[arg(long, value_name = "JSON", value_parser = json_object, help_heading = MODEL)]
    sampling: Option<Map<String, Value>>,
    #[command(flatten)]
    prompts: PromptArguments,
}

const AGENT: &str = "Agent";
const MODEL: &str = "Model";

const AFTER_HELP: &str = "\
Examples:
  rolltap run -p tasks/hello-world -a oracle
  rolltap run -p tasks -a terminal --upstream http://127.0.0.1:8000 -k 8 -n 16
  rolltap run -p tasks -a claude-code --ak max_turns=30 --upstream http://127.0.0.1:8000
  rolltap run -p tasks -a command --agent-command 'claude -p \"$ROLLTAP_INSTRUCTION\"' \\
    --upstream http://gpu:8000
  rolltap run -p tasks -a terminal -m qwen3 --proxy http://127.0.0.1:7071 \\
    --sampling '{\"temperature\": 0.7}'

Ctrl-C stops: running trials are cancelled, everything is cleaned up, results so far are written.
Once more hurries.

Exit codes: 0 done; 1 done, but a trial failed for a reason that is not the agent's; 2 wrong usage
or configuration, before anything started.";

pub(crate) fn json_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))
}

/// What is JSON is that; anything else is text, as with Harbor.
fn option(text: &str) -> Result<(String, Value), String> {
    let (name, value) = variable(text)?;
    Ok((name, serde_json::from_str(&value).unwrap_or(Value::String(value))))
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let quiet = arguments.quiet;
    let settings = settings(arguments)?;
    let report = run_job(settings, Progress::for_stderr(quiet), terminal::cancelled_by_signals()?).await?;
    terminal::say(Summary(&report));
    Ok(if report.is_clean() { Outcome::Done } else { Outcome::Failed })
}

fn settings(arguments: Arguments) -> anyhow::Result<JobSettings> {
    let options = AgentOptions {
        command: arguments.agent_command,
        max_turns: arguments.max_turns,
        kwargs: arguments.agent_kwarg.into_iter().collect(),
        env: arguments.agent_env.into_iter().collect(),
    };
    let agent = AgentSpec::new(&arguments.agent, options)?;
    let history = arguments.prompts.history()?;
    let proxy = match arguments.proxy {
        Some(admin_url) => {
            if !arguments.upstream.is_empty() {
                eprintln!("note: with --proxy, its own upstreams are used, not --upstream");
            }
            let token = arguments.proxy_token_file.as_deref().map(read_token).transpose()?;
            ProxyChoice::External { admin_url, token }
        }
        None => ProxyChoice::Embedded(Upstreams {
            addresses: arguments.upstream,
            api_key: arguments.upstream_api_key,
            render: arguments.prompts.render_settings()?,
        }),
    };
    Ok(JobSettings {
        tasks: tasks(&arguments.path)?,
        agents: vec![JobAgent::new(agent, arguments.model)],
        samples: arguments.samples,
        concurrency: arguments.concurrency,
        environment: arguments.environment,
        force_build: arguments.force_build,
        jobs_dir: arguments.jobs_dir,
        job_name: arguments.job_name,
        proxy,
        history,
        sampling: arguments.sampling.unwrap_or_default(),
        timeouts: TimeoutPolicy::multiplied(arguments.timeout_multiplier),
    })
}

fn tasks(paths: &[PathBuf]) -> anyhow::Result<Vec<Task>> {
    let found = paths.iter().map(|path| discover(path)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(found.into_iter().flatten().collect())
}

fn discover(path: &Path) -> anyhow::Result<Vec<Task>> {
    task::discover(path).with_context(|| format!("no usable task at {}", path.display()))
}

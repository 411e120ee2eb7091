//! `rolltap run`

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use rolltap_orchestrator::agents::AgentOptions;
use rolltap_orchestrator::environment::EnvironmentKind;
use rolltap_orchestrator::job::config::{AgentDefaults, AgentEntry, JobConfig, JobFile, OwnConfig};
use rolltap_orchestrator::job::{JobSettings, Progress, ProxyChoice, PublicPlace, Upstreams, run_job, tasks};
use rolltap_orchestrator::summary::Summary;
use rolltap_orchestrator::trial::Events;
use rolltap_orchestrator::trial::runner::harbor::HarborSettings;
use rolltap_proxy::Address;
use serde_json::{Map, Value};

use crate::proxy::read_token;
use crate::render_args::PromptArguments;
use crate::{Outcome, terminal};

/// Run an agent at Harbor tasks and collect rollouts with rewards
///
/// Each sample of each task is a trial: its environment is started, the agent works in it, its calls to the model are
/// captured, and the task's tests give the reward. Results, logs and rollouts are in the job's directory.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// A Harbor task directory, or a directory of such; repeat it for more. Instead of the tasks of a --config.
    #[arg(short, long, required_unless_present_any = ["config", "resume"], value_name = "PATH")]
    path: Vec<PathBuf>,
    /// Harbor's job file, YAML or JSON, with a section `rolltap` for what Harbor has no keys for. Flags count before it.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Go on with the interrupted job in this directory, as it was configured. What ended stays; what was under way is
    /// tried once more.
    #[arg(long, value_name = "JOB_DIR", conflicts_with_all = ["config", "path", "job_name", "jobs_dir"])]
    resume: Option<PathBuf>,
    /// Samples of each task; together they are the task's group. A job has at most 100000 trials. [default: 1]
    #[arg(short = 'k', long, visible_alias = "n-attempts", value_name = "NUMBER")]
    samples: Option<NonZeroU32>,
    /// Trials at once. Another number may be given when a job is resumed. [default: 4]
    #[arg(short = 'n', long, visible_alias = "n-concurrent", value_name = "NUMBER")]
    concurrency: Option<NonZeroUsize>,
    /// Trials of one task at once. [default: as many as the job's]
    #[arg(long, value_name = "NUMBER")]
    n_concurrent_per_task: Option<NonZeroUsize>,
    /// Stop the job after so many trials in a row whose captures hold nothing to train, as when a router in between takes
    /// out token ids; 0: never. [default: 20]
    #[arg(long, value_name = "NUMBER")]
    max_empty_trials: Option<u32>,
    /// Further attempts at a sample whose trial failed through no fault of the agent. [default: 0]
    #[arg(short = 'r', long, value_name = "NUMBER")]
    max_retries: Option<u32>,
    /// Where job directories lie. [default: jobs]
    #[arg(short = 'o', long, env = "ROLLTAP_JOBS_DIR", value_name = "DIR")]
    jobs_dir: Option<PathBuf>,
    /// The job's name and that of its directory. Where that is there already, of an equal job, it is gone on with.
    /// [default: the time, like 2026-11-21__03-42-00]
    #[arg(long, value_name = "NAME")]
    job_name: Option<String>,
    /// Every time limit of every task is multiplied by this. [default: 1]
    #[arg(long, value_name = "FACTOR")]
    timeout_multiplier: Option<f64>,
    /// No progress while trials run.
    #[arg(short, long)]
    quiet: bool,
    /// What happens, as JSON lines on standard output; the summary goes to standard error.
    #[arg(long)]
    json: bool,

    /// Who works at the tasks: oracle (the task's own solution), nop (nothing), command (any shell command), terminal
    /// (rolltap's own agent), an installed one like claude-code or codex (`rolltap agents` lists them), or a file that
    /// declares one of your own.
    #[arg(short, long, required_unless_present_any = ["config", "resume"], value_name = "AGENT", help_heading = AGENT)]
    agent: Option<String>,
    /// For agent command: the shell command to run inside each environment. The model's address and the trial's key are
    /// in the variables that agents read (OPENAI_BASE_URL, ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL, LLM_BASE_URL and
    /// the keys beside them), the instruction in ROLLTAP_INSTRUCTION and in the file ROLLTAP_INSTRUCTION_FILE.
    #[arg(long, value_name = "COMMAND", help_heading = AGENT)]
    agent_command: Option<String>,
    /// For agent terminal: turns after which it stops; its kwarg max_turns. [default: 100]
    #[arg(long, value_name = "NUMBER", help_heading = AGENT)]
    max_turns: Option<u32>,
    /// An option of agent terminal or of an installed one, and `version` of each of these; repeat it for more.
    /// `rolltap agents NAME` lists them.
    #[arg(long, visible_alias = "ak", value_name = "NAME=VALUE", value_parser = option, help_heading = AGENT)]
    agent_kwarg: Vec<(String, Value)>,
    /// An environment variable of an installed agent, of agent command or of agent terminal's shell; repeat it for more.
    #[arg(long, visible_alias = "ae", value_name = "NAME=VALUE", value_parser = variable, help_heading = AGENT)]
    agent_env: Vec<(String, String)>,
    /// Where trials run: docker (a container each), local (a temporary directory on this host, which is no sandbox: the
    /// agent can do whatever you can), or harbor (the installed harbor package runs them: --agent is one of Harbor's).
    /// [default: docker]
    #[arg(short, long = "env", visible_alias = "environment", value_name = "ENVIRONMENT", help_heading = AGENT)]
    environment: Option<EnvironmentKind>,
    /// For environment harbor: Harbor's own environment, like docker, daytona or modal, or an import path. [default: docker]
    #[arg(long, value_name = "TYPE", help_heading = AGENT)]
    harbor_env: Option<String>,
    /// For environment harbor: a keyword argument of Harbor's environment; repeat it for more.
    #[arg(long, visible_alias = "ek", value_name = "NAME=VALUE", value_parser = option, help_heading = AGENT)]
    harbor_env_kwarg: Vec<(String, Value)>,
    /// For environment harbor, and for agent terminus-2 in any: the Python that has the package harbor 0.25.
    /// [default: python3]
    #[arg(long, env = "ROLLTAP_HARBOR_PYTHON", value_name = "PATH", help_heading = AGENT)]
    harbor_python: Option<PathBuf>,
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
    /// Where the embedded proxy listens, for agents of other machines; with --public-url. Only calls of agents are taken there.
    #[arg(long, value_name = "ADDRESS", requires = "public_url", conflicts_with = "proxy", help_heading = MODEL)]
    listen: Option<SocketAddr>,
    /// How agents reach what --listen names, like https://gateway.example:7070: every agent of the job is told this.
    #[arg(long, value_name = "URL", requires = "listen", conflicts_with = "proxy", help_heading = MODEL)]
    public_url: Option<String>,
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
  rolltap run -p tasks -e harbor -a terminus-2 --upstream http://127.0.0.1:8000
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
pub(crate) fn option(text: &str) -> Result<(String, Value), String> {
    let (name, value) = variable(text)?;
    Ok((name, serde_json::from_str(&value).unwrap_or(Value::String(value))))
}

pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

pub(crate) async fn run(mut arguments: Arguments) -> anyhow::Result<Outcome> {
    let file = job_file(&arguments)?;
    let JobFile { job, own } = with_flags(file, &mut arguments)?;
    let mut progress = Progress::for_stderr(arguments.quiet || job.quiet);
    let json = arguments.json;
    if json {
        progress = progress.telling(Events::to(std::io::stdout()));
    }
    let settings = settings(job, own, arguments).await?;
    let report = run_job(settings, progress, terminal::cancelled_by_signals()?).await?;
    if json {
        terminal::note(Summary(&report))
    } else {
        terminal::say(Summary(&report))
    }
    Ok(if report.is_clean() { Outcome::Done } else { Outcome::Failed })
}

/// What a file says of the job, if one does.
fn job_file(arguments: &Arguments) -> anyhow::Result<JobFile> {
    if let Some(path) = &arguments.config {
        return JobFile::read(path).with_context(|| format!("job file {} cannot be used", path.display()));
    }
    let Some(dir) = &arguments.resume else { return Ok(JobFile::default()) };
    let dir = dir.canonicalize().with_context(|| format!("no job directory {}", dir.display()))?;
    let mut file = JobFile::read(&dir.join("config.json"))
        .with_context(|| format!("the job in {} cannot be gone on with", dir.display()))?;
    file.job.job_name = dir.file_name().map(|name| name.to_string_lossy().into_owned());
    file.job.jobs_dir = dir.parent().map(Path::to_owned);
    Ok(file)
}

/// What flags and variables say counts before what the file says.
fn with_flags(mut file: JobFile, arguments: &mut Arguments) -> anyhow::Result<JobFile> {
    let JobFile { job, own } = &mut file;
    job.n_attempts = arguments.samples.or(job.n_attempts);
    job.n_concurrent_trials = arguments.concurrency.or(job.n_concurrent_trials);
    job.jobs_dir = arguments.jobs_dir.take().or(job.jobs_dir.take());
    job.job_name = arguments.job_name.take().or(job.job_name.take());
    job.timeout_multiplier = arguments.timeout_multiplier.or(job.timeout_multiplier);
    job.retry.max_retries = arguments.max_retries.unwrap_or(job.retry.max_retries);
    job.environment.force_build |= arguments.force_build;
    own.n_concurrent_per_task = arguments.n_concurrent_per_task.or(own.n_concurrent_per_task);
    own.max_empty_trials = arguments.max_empty_trials.or(own.max_empty_trials);
    own.environment = arguments.environment.map(|kind| kind.to_string()).or(own.environment.take());
    if !arguments.path.is_empty() {
        job.tasks.clear();
        job.datasets.clear();
        for path in &arguments.path {
            tasks::at_path(job, path).with_context(|| format!("no usable task at {}", path.display()))?;
        }
    }
    if let Some(name) = arguments.agent.take() {
        job.agents = Some(vec![AgentEntry { name: Some(name), ..AgentEntry::default() }]);
    }
    if let Some(model) = &arguments.model {
        for agent in job.agents.iter_mut().flatten() {
            agent.model_name = Some(model.clone());
        }
    }
    if arguments.proxy.is_some() || !arguments.upstream.is_empty() {
        own.proxy = arguments.proxy.take();
        own.proxy_token_file = arguments.proxy_token_file.take();
    }
    if arguments.listen.is_some() {
        own.listen = arguments.listen;
        own.public_url = arguments.public_url.take();
    }
    own.sampling = arguments.sampling.take().or(own.sampling.take());
    arguments.prompts.or(own);
    Ok(file)
}

async fn settings(job: JobConfig, own: OwnConfig, arguments: Arguments) -> anyhow::Result<JobSettings> {
    let environment = job.environment_kind(&own)?;
    let runner = environment.runner();
    let defaults = AgentDefaults {
        runner,
        options: AgentOptions {
            command: arguments.agent_command.clone(),
            max_turns: arguments.max_turns,
            harbor_python: arguments.harbor_python.clone(),
            kwargs: arguments.agent_kwarg.iter().cloned().collect(),
            env: arguments.agent_env.iter().cloned().collect(),
        },
    };
    let agents = job.job_agents(&defaults)?;
    let history = arguments.prompts.history()?;
    let timeouts = job.timeouts(&own);
    let per_task = own.n_concurrent_per_task;
    let max_empty_trials = own.max_empty_trials.unwrap_or(JobSettings::DEFAULT_MAX_EMPTY_TRIALS);
    let sampling = own.sampling.clone().unwrap_or_default();
    let harbor = HarborSettings {
        python: arguments.harbor_python.clone(),
        environment_type: arguments
            .harbor_env
            .clone()
            .unwrap_or_else(|| HarborSettings::default().environment_type),
        environment_kwargs: arguments.harbor_env_kwarg.iter().cloned().collect(),
    };
    let proxy = proxy(&job, own, arguments)?;
    let found = tasks::find(&job, runner).await.context("no usable task")?;
    Ok(JobSettings {
        overrides: job.overrides()?,
        samples: job.samples(),
        concurrency: job.concurrency(),
        per_task,
        max_empty_trials,
        metrics: job.job_metrics(),
        harbor,
        force_build: job.environment.force_build,
        retry: job.retry,
        job_name: job.job_name,
        history,
        sampling,
        timeouts,
        ..JobSettings::new(
            found,
            agents,
            environment,
            job.jobs_dir.unwrap_or_else(|| PathBuf::from("jobs")),
            proxy,
        )
    })
}

fn proxy(job: &JobConfig, own: OwnConfig, arguments: Arguments) -> anyhow::Result<ProxyChoice> {
    if let Some(admin_url) = own.proxy {
        if !arguments.upstream.is_empty() {
            terminal::note("note: with --proxy, its own upstreams are used, not --upstream");
        }
        let token = own.proxy_token_file.as_deref().map(read_token).transpose()?;
        return Ok(ProxyChoice::External { admin_url, token });
    }
    let public = public_place(&own)?;
    let render = arguments.prompts.render_settings()?;
    let api_key = arguments.upstream_api_key.or(own.upstream_api_key);
    if !arguments.upstream.is_empty() {
        let upstreams = Upstreams { addresses: arguments.upstream, api_key, render };
        return Ok(ProxyChoice::Embedded { upstreams, public });
    }
    let (urls, api_key) = match job.agents_upstream()? {
        Some((url, key)) if own.upstream.is_empty() => (vec![url], key.or(api_key)),
        _ => (own.upstream, api_key),
    };
    let addresses = urls.iter().map(|url| url.parse()).collect::<Result<Vec<Address>, _>>()?;
    Ok(ProxyChoice::Embedded { upstreams: Upstreams { addresses, api_key, render }, public })
}

fn public_place(own: &OwnConfig) -> anyhow::Result<Option<PublicPlace>> {
    match (own.listen, &own.public_url) {
        (Some(listen), Some(url)) => Ok(Some(PublicPlace { listen, url: url.parse()? })),
        (None, None) => Ok(None),
        _ => anyhow::bail!(
            "listen and public_url go together: where the proxy listens, and how agents reach that"
        ),
    }
}

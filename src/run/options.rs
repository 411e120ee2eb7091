//! The options of `rolltap run`.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use clap::Args;
use rolltap_orchestrator::environment::EnvironmentKind;
use rolltap_orchestrator::job::summary::Rows;
use rolltap_proxy::Address;
use rolltap_rollout::rollout::RewardRule;
use serde_json::{Map, Value};

use super::harbor_options::HarborOptions;
use crate::cluster_options::ClusterOptions;
use crate::connection_options::{PlaneTlsOptions, UpstreamConnectionOptions};
use crate::option_values::{
    Concurrency, concurrency, factor, json_object, one_or_more, option, variable, whole,
};
use crate::prompt_options::PromptOptions;
use crate::trace_options::TraceOptions;

/// Run an agent at Harbor tasks and collect rollouts with rewards
///
/// Each sample of each task is a trial. rolltap starts its environment, the agent works in it, the proxy captures its
/// calls, and the tests of the task give the reward. Results, logs and rollouts are in the directory of the job.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Run this Harbor task directory, or all tasks in this directory. Repeat the flag for more.
    ///
    /// These tasks replace the tasks of --config.
    #[arg(short, long, required_unless_present_any = ["config", "resume", "dataset", "repo"],
          value_name = "PATH")]
    pub(super) path: Vec<PathBuf>,
    /// Read this job file of Harbor, in YAML or JSON. Flags override it.
    ///
    /// Its section `rolltap` has the settings without a key in Harbor's format.
    #[arg(short, long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Resume the interrupted job in this directory, with its configuration.
    ///
    /// Completed trials stay, and interrupted trials run again.
    #[arg(long, value_name = "JOB_DIR",
          conflicts_with_all = ["config", "path", "dataset", "repo", "job_name", "jobs_dir"])]
    pub(super) resume: Option<PathBuf>,
    /// Run this many samples of each task, which form a group. A job has at most 100000 trials. [default: 1]
    #[arg(short = 'k', long, visible_alias = "n-attempts", value_name = "NUMBER",
          value_parser = one_or_more::<NonZeroU32>, allow_negative_numbers = true)]
    pub(super) samples: Option<NonZeroU32>,
    /// Run this many trials at the same time, or `auto`. A resumed job may have another number. [default: 4, or 1000 with
    /// --cluster]
    ///
    /// `auto` runs as many as fit into the KV caches of the upstreams until they end, so that no turn computes its prompt
    /// again; at most 16 per core of this host. `auto:NUMBER` sets another bound.
    #[arg(short = 'n', long, visible_alias = "n-concurrent", value_name = "NUMBER|auto",
          value_parser = concurrency, allow_negative_numbers = true)]
    pub(super) concurrency: Option<Concurrency>,
    /// Run at most this many trials of one task at the same time. [default: the value of --concurrency]
    #[arg(long, value_name = "NUMBER", value_parser = one_or_more::<NonZeroUsize>, allow_negative_numbers = true)]
    pub(super) n_concurrent_per_task: Option<NonZeroUsize>,
    /// Stop the job after this many trials in a row without trainable tokens; 0 never stops it. [default: 20]
    ///
    /// Such trials are typical of a router before vLLM that removes token ids.
    #[arg(long, value_name = "NUMBER", value_parser = whole, allow_negative_numbers = true)]
    pub(super) max_empty_trials: Option<u32>,
    /// Retry a sample up to this often if its trial fails for a reason that is not the agent's. [default: 0]
    #[arg(short = 'r', long, value_name = "NUMBER", value_parser = whole, allow_negative_numbers = true)]
    pub(super) max_retries: Option<u32>,
    /// Create the directory of the job in this directory. [default: jobs]
    #[arg(short = 'o', long, env = "ROLLTAP_JOBS_DIR", value_name = "DIR")]
    pub(super) jobs_dir: Option<PathBuf>,
    /// Give the job and its directory this name. [default: the time, like 2026-11-21__03-42-00]
    ///
    /// If the directory exists and has an equal job, that job resumes.
    #[arg(long, value_name = "NAME")]
    pub(super) job_name: Option<String>,
    /// Multiply each time limit of each task by this factor. [default: 1]
    #[arg(long, value_name = "FACTOR", value_parser = factor, allow_negative_numbers = true)]
    pub(super) timeout_multiplier: Option<f64>,
    /// Make the number to train on of the rewards of a trial by this rule. [default: the reward named `reward`, or the
    /// only one]
    ///
    /// The rule is the name of a reward, `mean` or `sum` of all rewards, or a weighted sum like
    /// `correctness=0.8,style=0.2`. The key rolltap.task_rewards of --config has rules for single tasks.
    #[arg(long, value_name = "RULE")]
    pub(super) reward: Option<RewardRule>,
    /// Print the plan of the job and start nothing: tasks, agents, trials, images, and variables of this host.
    ///
    /// Neither Docker nor the model is contacted.
    #[arg(long, conflicts_with = "print_config")]
    pub(super) dry_run: bool,
    /// Print the configuration after all flags and variables as a job file for --config, and start nothing.
    ///
    /// The file is JSON, which is valid YAML. Secrets are replaced by references to variables of this host.
    #[arg(long)]
    pub(super) print_config: bool,
    /// Leave out tasks that cannot be used, with a warning. Without this flag, such a task stops the job.
    #[arg(long)]
    pub(super) skip_invalid: bool,
    /// Write the messages and tools of each call into rollouts.jsonl and rollouts.parquet.
    ///
    /// Each call repeats the messages before it, so the files grow with the square of the turns. Exports of the job's
    /// directory have the messages without this flag.
    #[arg(long)]
    pub(super) messages: bool,
    /// Hide the progress of running trials.
    #[arg(short, long, visible_alias = "silent")]
    pub(super) quiet: bool,
    /// Print a row per trial and a row per task in the summary if these tables have at most this many rows, or `all`.
    #[arg(long, value_name = "NUMBER", default_value_t)]
    pub(super) rows: Rows,
    /// Log all details, like -vv.
    #[arg(long)]
    pub(crate) debug: bool,
    /// Confirm everything. It has no effect, because rolltap asks nothing; scripts for Harbor have it.
    #[arg(short, long)]
    pub(super) yes: bool,
    /// Set the variables of this .env file before the job, in place of those of the shell.
    ///
    /// It has a line NAME=VALUE for each variable. Tasks and job files refer to them as ${NAME}.
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Option<PathBuf>,
    /// Print events as JSON lines on standard output. The summary goes to standard error.
    #[arg(long)]
    pub(super) json: bool,

    /// Choose the agent that works at the tasks. [default: oracle]
    ///
    /// Built-in agents are oracle (the solution of the task), nop (no action), command (a shell command) and terminal
    /// (rolltap's own agent). `rolltap agents` lists the installed agents, like claude-code and codex. The path of a
    /// definition file chooses your own agent.
    #[arg(short, long, value_name = "AGENT", help_heading = AGENT)]
    pub(super) agent: Option<String>,
    /// Run this shell command inside each environment, for agent command.
    ///
    /// The address of the model is in OPENAI_BASE_URL, ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL and LLM_BASE_URL. The
    /// key of the trial is in the variables of API keys with the same prefixes. The instruction is in
    /// ROLLTAP_INSTRUCTION and in the file ROLLTAP_INSTRUCTION_FILE.
    #[arg(long, value_name = "COMMAND", help_heading = AGENT)]
    pub(super) agent_command: Option<String>,
    /// Stop agent terminal after this many turns, like its option max_turns. [default: 100]
    #[arg(long, value_name = "NUMBER", value_parser = one_or_more::<u32>, allow_negative_numbers = true,
          help_heading = AGENT)]
    pub(super) max_turns: Option<u32>,
    /// Set an option of agent terminal or of an installed agent. Repeat the flag for more.
    ///
    /// `rolltap agents NAME` lists the options. Each installed agent has the option `version`.
    #[arg(long, visible_alias = "ak", value_name = "NAME=VALUE", value_parser = option, help_heading = AGENT)]
    pub(super) agent_kwarg: Vec<(String, Value)>,
    /// Set an environment variable of an installed agent, of agent command, or of the shell of agent terminal. Repeat
    /// the flag for more.
    #[arg(long, visible_alias = "ae", value_name = "NAME=VALUE", value_parser = variable, help_heading = AGENT)]
    pub(super) agent_env: Vec<(String, String)>,
    /// Choose where trials run: docker, local or harbor. [default: docker]
    ///
    /// With docker, each trial has a container. With local, each has a temporary directory on this host, which is no
    /// sandbox: the agent can do all that your user can do. With harbor, the installed harbor package runs the trials,
    /// and --agent is an agent of Harbor.
    #[arg(short, long = "env", visible_alias = "environment", value_name = "ENVIRONMENT", help_heading = AGENT)]
    pub(super) environment: Option<EnvironmentKind>,
    /// Choose the environment of Harbor, for environment harbor. [default: docker]
    ///
    /// It is a name like docker, daytona or modal, or an import path.
    #[arg(long, value_name = "TYPE", help_heading = AGENT)]
    pub(super) harbor_env: Option<String>,
    /// Set a keyword argument of the environment of Harbor, for environment harbor. Repeat the flag for more.
    #[arg(long, visible_aliases = ["ek", "environment-kwarg"], value_name = "NAME=VALUE", value_parser = option,
          help_heading = AGENT)]
    pub(super) harbor_env_kwarg: Vec<(String, Value)>,
    /// Run Harbor with this Python, which has the package harbor 0.25. [default: python3]
    ///
    /// Environment harbor needs it, and agent terminus-2 needs it in each environment.
    #[arg(long, env = "ROLLTAP_HARBOR_PYTHON", value_name = "PATH", help_heading = AGENT)]
    pub(super) harbor_python: Option<PathBuf>,
    /// Build images even if an earlier job built them, or if a task with a Dockerfile names a ready image.
    #[arg(long, overrides_with = "no_force_build", help_heading = AGENT)]
    pub(super) force_build: bool,
    /// Build only images that are missing, which is the default.
    #[arg(long, overrides_with = "force_build", help_heading = AGENT)]
    pub(super) no_force_build: bool,

    /// End the processes of the agent before the tests run.
    ///
    /// Without this flag they continue, as in Harbor, because tests may examine a server that the agent started. A task
    /// decides for itself with kill_agent_processes in [metadata.rolltap] of its task.toml.
    #[arg(long, help_heading = AGENT)]
    pub(super) kill_agent_processes: bool,

    /// Use this model, by its name at the upstream. Repeat the flag to run the agent with several models. [default: the
    /// only model of the upstream]
    #[arg(short, long, env = "ROLLTAP_MODEL", value_name = "MODEL", help_heading = MODEL)]
    pub(super) model: Vec<String>,
    /// Use the vLLM server at this URL, with or without /v1. Repeat the flag for several replicas of one model.
    ///
    /// The job embeds a proxy before the servers.
    #[arg(long, visible_alias = "base-url", env = "ROLLTAP_UPSTREAM", value_name = "URL", value_delimiter = ',',
          help_heading = MODEL)]
    pub(super) upstream: Vec<Address>,
    /// Send this API key to the upstreams (vLLM's --api-key).
    #[arg(long, env = "ROLLTAP_UPSTREAM_API_KEY", value_name = "KEY", hide_env_values = true, help_heading = MODEL)]
    pub(super) upstream_api_key: Option<String>,
    #[command(flatten)]
    pub(super) upstream_connections: UpstreamConnectionOptions,
    #[command(flatten)]
    pub(super) plane_tls: PlaneTlsOptions,
    /// Use the running proxy with this admin plane, instead of --upstream and an embedded proxy.
    #[arg(long, value_name = "ADMIN_URL", help_heading = MODEL)]
    pub(super) proxy: Option<String>,
    /// Send the token in this file to the admin plane of --proxy. It needs the roles open, reward and read.
    #[arg(long, value_name = "FILE", requires = "proxy", help_heading = MODEL)]
    pub(super) proxy_token_file: Option<PathBuf>,
    /// Trust the authorities in this PEM file for the admin plane of --proxy, besides those of the system. Repeat the
    /// flag for several files.
    #[arg(long, value_name = "FILE", requires = "proxy", help_heading = MODEL)]
    pub(super) proxy_ca: Vec<PathBuf>,
    /// Identify the job to the admin plane of --proxy by the certificate in this PEM file, if that proxy has
    /// --admin-client-ca.
    #[arg(long, value_name = "FILE", requires = "proxy", requires = "proxy_client_key", help_heading = MODEL)]
    pub(super) proxy_client_cert: Option<PathBuf>,
    /// Read the private key of --proxy-client-cert from this PEM file.
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert", help_heading = MODEL)]
    pub(super) proxy_client_key: Option<PathBuf>,
    /// Serve the agent plane of the embedded proxy at this address, for agents on other machines. The flag requires
    /// --public-url.
    #[arg(long, value_name = "ADDRESS", requires = "public_url", conflicts_with = "proxy", help_heading = MODEL)]
    pub(super) listen: Option<SocketAddr>,
    /// Give all agents of the job this URL of --listen, like https://gateway.example/rolltap.
    #[arg(long, value_name = "URL", requires = "listen", conflicts_with = "proxy", help_heading = MODEL)]
    pub(super) public_url: Option<String>,
    /// Start the job even if nothing of a call to an upstream can be trained.
    ///
    /// Without this flag, the job makes one short call to each upstream first, and does not start if the answer has no
    /// token ids or logprobs. `rolltap doctor` examines a server in detail.
    #[arg(long, conflicts_with = "proxy", help_heading = MODEL)]
    pub(super) no_preflight: bool,
    /// Set these request keys in each call of each trial, as a JSON object. Keys of vLLM are valid too.
    #[arg(long, value_name = "JSON", value_parser = json_object, help_heading = MODEL)]
    pub(super) sampling: Option<Map<String, Value>>,
    #[command(flatten)]
    pub(super) prompts: PromptOptions,
    #[command(flatten)]
    pub(super) cluster: ClusterOptions,
    #[command(flatten)]
    pub(super) traces: TraceOptions,
    #[command(flatten)]
    pub(super) harbor: HarborOptions,
}

pub(super) const AGENT: &str = "Agent";
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

Ctrl-C stops the job. It cancels running trials, removes their environments, and writes the results so
far. A second Ctrl-C skips the collection of logs and rollouts.

Exit codes: 0 for success; 1 if a trial failed for a reason that is not the agent's; 2 for wrong usage
or configuration, before any work starts.";

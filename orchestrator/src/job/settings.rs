//! The settings of a job.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use rolltap_proxy::traces::TraceSettings;
use rolltap_proxy::{
    Address, History, HttpProxy, InvalidAddress, PlaneTls, PublicUrl, RenderSettings, SessionHeaders,
    UpstreamTls,
};
use serde_json::{Map, Value};

use super::config::{JobFile, Metric, RetryConfig, SettingsError};
use super::tasks::{Found, JobTask};
use super::{RewardRules, UnusableTask};
use crate::environment::EnvironmentKind;
use crate::failure::TimeoutPolicy;
use crate::trial::runner::harbor::HarborSettings;
use crate::trial::runner::workers::WorkerCluster;
use crate::trial::{JobAgent, TaskOverrides};

/// The settings of a job.
#[derive(Debug)]
pub struct JobSettings {
    /// The tasks. Each has a unique name within its dataset.
    pub tasks: Vec<JobTask>,
    /// Tasks of the job that cannot be loaded.
    pub unusable: Vec<UnusableTask>,
    /// Whether the job runs without the tasks that cannot be used. Otherwise it does not start.
    pub skip_invalid: bool,
    /// Values that replace those of the tasks.
    pub overrides: TaskOverrides,
    /// Whether the tasks are those of this program, which need no warning about the local environment.
    pub has_own_tasks: bool,
    /// The agents. Each works at every task.
    pub agents: Vec<JobAgent>,
    /// The number of samples of each task by each agent. Together they are a group.
    pub samples: NonZeroU32,
    /// The number of trials that run at once.
    pub concurrency: NonZeroUsize,
    /// Whether fewer trials run at once where more would not fit into the KV caches of the upstreams.
    pub auto_concurrency: bool,
    /// The number of trials of one task that run at once. `None` if only `concurrency` limits them.
    pub per_task: Option<NonZeroUsize>,
    /// The job stops after this many consecutive trials without a trainable call. 0 disables this limit.
    pub max_empty_trials: u32,
    /// Which failed trials get another attempt.
    pub retry: RetryConfig,
    /// The metrics over all rewards.
    pub metrics: Vec<Metric>,
    /// The rules for the number to train on.
    pub reward_rules: RewardRules,
    /// Where trials run.
    pub environment: EnvironmentKind,
    /// Whether images are built even if they exist, or if the task names a prebuilt image beside its Dockerfile.
    pub force_build: bool,
    /// How Harbor runs, if the environment is `harbor`.
    pub harbor: HarborSettings,
    /// The directory that contains the job directories.
    pub jobs_dir: PathBuf,
    /// The job's name. `None` for a name from the time of its start.
    pub job_name: Option<String>,
    /// The proxy that captures the calls.
    pub proxy: ProxyChoice,
    /// Whether a call to each upstream of an embedded proxy must be captured before the job starts.
    pub preflight: bool,
    /// How the proxy treats the tokens of earlier turns. `None` for the proxy's own setting.
    pub history: Option<History>,
    /// Keys that override those of every request of every trial.
    pub sampling: Map<String, Value>,
    /// The time limits of the phases of every trial.
    pub timeouts: TimeoutPolicy,
    /// Whether the rollout files have the messages of each call. Each call repeats the messages before it.
    pub messages: bool,
    /// The cluster whose workers run the trials. `None` for trials on this host.
    pub cluster: Option<WorkerCluster>,
    /// Where spans of trials go, and of calls through an embedded proxy. `None` makes no spans.
    pub traces: Option<TraceSettings>,
}

impl JobSettings {
    /// The default of [`Self::max_empty_trials`].
    pub const DEFAULT_MAX_EMPTY_TRIALS: u32 = 20;

    /// The maximum number of trials of a job. The outcome of each is in memory until the job ends, and listed in its
    /// `result.json`.
    pub const MAX_TRIALS: u64 = 100_000;

    /// Returns default settings: one sample of each task, one trial at a time.
    pub fn new(
        tasks: Vec<JobTask>,
        agents: Vec<JobAgent>,
        environment: EnvironmentKind,
        jobs_dir: PathBuf,
        proxy: ProxyChoice,
    ) -> Self {
        Self {
            tasks,
            unusable: Vec::new(),
            skip_invalid: false,
            overrides: TaskOverrides::default(),
            has_own_tasks: false,
            agents,
            samples: NonZeroU32::MIN,
            concurrency: NonZeroUsize::MIN,
            auto_concurrency: false,
            per_task: None,
            max_empty_trials: Self::DEFAULT_MAX_EMPTY_TRIALS,
            retry: RetryConfig::default(),
            metrics: vec![Metric::Mean],
            reward_rules: RewardRules::default(),
            environment,
            harbor: HarborSettings::default(),
            force_build: false,
            jobs_dir,
            job_name: None,
            proxy,
            preflight: true,
            messages: false,
            history: None,
            sampling: Map::new(),
            timeouts: TimeoutPolicy::default(),
            cluster: None,
            traces: None,
        }
    }
}

impl JobSettings {
    /// Returns the settings of a job's file, with these agents and tasks and this proxy.
    ///
    /// # Errors
    /// Fails for an environment that rolltap does not have, and if a file with instructions cannot be read.
    pub fn of_file(
        JobFile { job, own }: JobFile,
        agents: Vec<JobAgent>,
        found: Found,
        proxy: ProxyChoice,
    ) -> Result<Self, SettingsError> {
        let environment = job.environment_kind(&own)?;
        let overrides = TaskOverrides { kill_agent_processes: own.kill_agent_processes, ..job.overrides()? };
        let jobs_dir = job.jobs_dir.clone().unwrap_or_else(|| PathBuf::from("jobs"));
        Ok(Self {
            overrides,
            samples: job.samples(),
            concurrency: job.concurrency(),
            auto_concurrency: own.auto_concurrency,
            per_task: own.n_concurrent_per_task,
            max_empty_trials: own.max_empty_trials.unwrap_or(Self::DEFAULT_MAX_EMPTY_TRIALS),
            metrics: job.job_metrics(),
            timeouts: job.timeouts(&own),
            unusable: found.unusable,
            skip_invalid: own.skip_invalid,
            messages: own.messages,
            reward_rules: RewardRules { all: own.reward, of_tasks: own.task_rewards },
            history: own.history,
            sampling: own.sampling.unwrap_or_default(),
            force_build: job.environment.force_build,
            retry: job.retry,
            job_name: job.job_name,
            ..Self::new(found.tasks, agents, environment, jobs_dir, proxy)
        })
    }
}

/// The proxy that captures a job's calls.
#[derive(Debug)]
pub enum ProxyChoice {
    /// A proxy inside this process, for as long as the job runs.
    Embedded {
        /// The vLLM servers that get the calls.
        upstreams: Box<Upstreams>,
        /// Where agents of other machines reach the proxy. `None` if only those of this machine reach it.
        public: Option<PublicPlace>,
    },
    /// A proxy that already runs.
    External {
        /// The URL of its admin plane.
        admin_url: String,
        /// The admin token, the content of its `--admin-token-file`.
        token: Option<String>,
        /// The files of TLS to an admin plane with `https`.
        tls: UpstreamTls,
    },
}

impl From<Upstreams> for ProxyChoice {
    fn from(upstreams: Upstreams) -> Self {
        Self::Embedded { upstreams: Box::new(upstreams), public: None }
    }
}

/// Where agents of other machines reach an embedded proxy.
#[derive(Clone, Debug)]
pub struct PublicPlace {
    /// The address on which the proxy listens.
    pub listen: SocketAddr,
    /// The base URL that every agent gets. Agents reach `listen` by it.
    pub url: PublicUrl,
    /// TLS of the proxy. `None` if something in front of it has TLS, or if the network is trusted.
    pub tls: Option<PlaneTls>,
}

/// The servers of a job's model. They may be empty if no agent calls a model.
#[derive(Debug, Default)]
pub struct Upstreams {
    /// The addresses of the servers.
    pub addresses: Vec<Address>,
    /// The API key of the servers.
    pub api_key: Option<String>,
    /// The settings for rendering prompts.
    pub render: RenderSettings,
    /// The files of TLS to servers with `https` addresses.
    pub tls: UpstreamTls,
    /// The HTTP proxy between the proxy and the servers.
    pub http_proxy: Option<HttpProxy>,
    /// The headers in which the servers get the session id of a conversation.
    pub session_headers: SessionHeaders,
}

impl Upstreams {
    /// Returns the addresses, each with the API key.
    pub(super) fn authorized(&self) -> Result<Vec<Address>, InvalidAddress> {
        let Some(key) = &self.api_key else { return Ok(self.addresses.clone()) };
        self.addresses.iter().cloned().map(|address| address.with_api_key(key)).collect()
    }
}

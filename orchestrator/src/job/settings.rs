//! What a job is asked for.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use rolltap_proxy::{Address, History, InvalidAddress, PublicUrl, RenderSettings};
use serde_json::{Map, Value};

use super::config::{Metric, RetryConfig};
use super::tasks::JobTask;
use crate::environment::EnvironmentKind;
use crate::failure::TimeoutPolicy;
use crate::trial::runner::harbor::HarborSettings;
use crate::trial::{JobAgent, TaskOverrides};

/// What to run.
#[derive(Debug)]
pub struct JobSettings {
    /// The tasks, each under a name of its own in its dataset.
    pub tasks: Vec<JobTask>,
    /// What is said instead of them.
    pub overrides: TaskOverrides,
    /// Who works at them, each at all of them.
    pub agents: Vec<JobAgent>,
    /// Samples of each task by each agent; together they are a group.
    pub samples: NonZeroU32,
    /// Trials at once.
    pub concurrency: NonZeroUsize,
    /// Trials of one task at once; none for as many as the job runs.
    pub per_task: Option<NonZeroUsize>,
    /// The job stops after so many trials in a row of whose calls nothing can be trained; 0 for never.
    pub max_empty_trials: u32,
    /// Which failed trials get another attempt.
    pub retry: RetryConfig,
    /// What is made of all rewards together.
    pub metrics: Vec<Metric>,
    /// Where commands run.
    pub environment: EnvironmentKind,
    /// Images are built although they are kept from before, and although a task with a Dockerfile names a ready one.
    pub force_build: bool,
    /// How Harbor is driven, where the environment is `harbor`.
    pub harbor: HarborSettings,
    /// Where job directories lie.
    pub jobs_dir: PathBuf,
    /// The job's name; none for the time of its start.
    pub job_name: Option<String>,
    /// Who captures the calls.
    pub proxy: ProxyChoice,
    /// What becomes of earlier turns' tokens; none for what the proxy is set to.
    pub history: Option<History>,
    /// Keys laid over every request of every trial.
    pub sampling: Map<String, Value>,
    /// How long the phases of every trial may take.
    pub timeouts: TimeoutPolicy,
}

impl JobSettings {
    /// For [`Self::max_empty_trials`].
    pub const DEFAULT_MAX_EMPTY_TRIALS: u32 = 20;

    /// Trials that a job has at most. What comes of each is in memory until the job ends, and named in its `result.json`.
    pub const MAX_TRIALS: u64 = 100_000;

    /// A job with nothing else said of it: one sample of each task, one trial after the other.
    pub fn new(
        tasks: Vec<JobTask>,
        agents: Vec<JobAgent>,
        environment: EnvironmentKind,
        jobs_dir: PathBuf,
        proxy: ProxyChoice,
    ) -> Self {
        Self {
            tasks,
            overrides: TaskOverrides::default(),
            agents,
            samples: NonZeroU32::MIN,
            concurrency: NonZeroUsize::MIN,
            per_task: None,
            max_empty_trials: Self::DEFAULT_MAX_EMPTY_TRIALS,
            retry: RetryConfig::default(),
            metrics: vec![Metric::Mean],
            environment,
            harbor: HarborSettings::default(),
            force_build: false,
            jobs_dir,
            job_name: None,
            proxy,
            history: None,
            sampling: Map::new(),
            timeouts: TimeoutPolicy::default(),
        }
    }
}

/// Who captures the calls.
#[derive(Debug)]
pub enum ProxyChoice {
    /// A proxy inside this process, for as long as the job runs.
    Embedded {
        /// Where calls go.
        upstreams: Upstreams,
        /// Where agents of other machines find it; none for those of this machine alone.
        public: Option<PublicPlace>,
    },
    /// One that runs already.
    External {
        /// Its `--admin` address as a URL.
        admin_url: String,
        /// What its `--admin-token-file` holds.
        token: Option<String>,
    },
}

impl From<Upstreams> for ProxyChoice {
    fn from(upstreams: Upstreams) -> Self {
        Self::Embedded { upstreams, public: None }
    }
}

/// Where agents of other machines find an embedded proxy.
#[derive(Clone, Debug)]
pub struct PublicPlace {
    /// Where it listens.
    pub listen: SocketAddr,
    /// How that is reached from there: what every agent is told.
    pub url: PublicUrl,
}

/// The servers of a job's model; none are needed for an agent that calls none.
#[derive(Debug, Default)]
pub struct Upstreams {
    /// Where they listen.
    pub addresses: Vec<Address>,
    /// The API key that they want.
    pub api_key: Option<String>,
    /// What its prompts are rendered with.
    pub render: RenderSettings,
}

impl Upstreams {
    /// The addresses, each with the key.
    pub(super) fn authorized(&self) -> Result<Vec<Address>, InvalidAddress> {
        let Some(key) = &self.api_key else { return Ok(self.addresses.clone()) };
        self.addresses.iter().cloned().map(|address| address.with_api_key(key)).collect()
    }
}

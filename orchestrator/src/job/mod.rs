//! A job: many trials from one configuration, so many at once, their rollouts gathered at the end.

mod agent;
mod checksum;
pub mod config;
mod events;
mod overrides;
mod place;
mod plan;
mod preflight;
mod progress;
mod proxy;
mod queue;
mod resume;
mod retry;
mod rollouts;
mod run;
pub mod tasks;

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use rolltap_proxy::{Address, History, InvalidAddress, RenderSettings};
use serde_json::{Map, Value};

pub use agent::{AgentLimit, AgentTimeouts, JobAgent};
use config::{Metric, RetryConfig};
pub use events::Events;
pub use overrides::TaskOverrides;
pub(crate) use overrides::without_secrets;
pub(crate) use place::Place;
pub use preflight::PreflightError;
pub use progress::Progress;
pub use resume::ResumeError;
pub use rollouts::RolloutFiles;
pub use run::run_job;
use tasks::JobTask;

use crate::admin_client::{AdminClient, AdminError};
use crate::agents::LayerError;
use crate::cancellation::Cancellation;
use crate::environment::{EnvironmentError, EnvironmentKind};
use crate::harbor::{HarborError, HarborSettings};
use crate::job_dir::{JobDir, JobDirError};
use crate::records::Records;
use crate::trial::{InvalidTimeout, TimeoutPolicy, TrialOutcome};

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
    Embedded(Upstreams),
    /// One that runs already.
    External {
        /// Its `--admin` address as a URL.
        admin_url: String,
        /// What its `--admin-token-file` holds.
        token: Option<String>,
    },
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
    fn authorized(&self) -> Result<Vec<Address>, InvalidAddress> {
        let Some(key) = &self.api_key else { return Ok(self.addresses.clone()) };
        self.addresses.iter().cloned().map(|address| address.with_api_key(key)).collect()
    }
}

/// Why a job did not start. Once it has started, what goes wrong is in its report.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// An empty list of tasks.
    #[error("no task to run")]
    NoTasks,
    /// An empty list of agents.
    #[error("no agent to run")]
    NoAgents,
    /// Two agents would be one.
    #[error(
        "two agents of the job are the same, {label:?}: give them different models, or ask for more samples"
    )]
    SameAgent {
        /// Both of them.
        label: String,
    },
    /// Two tasks would be one group.
    #[error("two tasks of one dataset are named {name:?}: {} and {}; give each a name of its own", first.display(), second.display())]
    SameName {
        /// The name.
        name: String,
        /// One directory.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A name that cannot be recorded.
    #[error("task in {} has a name that cannot be used", dir.display())]
    TaskName {
        /// Where.
        dir: PathBuf,
        /// Why.
        #[source]
        source: rolltap_rollout::ids::InvalidId,
    },
    /// What the job says instead of its tasks cannot be.
    #[error(transparent)]
    Overrides(#[from] crate::task::TaskError),
    /// A task that cannot be read whole.
    #[error("cannot read task {}", dir.display())]
    TaskFiles {
        /// Where.
        dir: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A task means more than its agent would be told.
    #[error("{}: gives its agent {what}, and agent {agent:?} takes none", task.display())]
    WouldNotSee {
        /// The task.
        task: PathBuf,
        /// The agent.
        agent: String,
        /// What it would never see.
        what: String,
    },
    /// A task that the chosen environment cannot run as it is meant.
    #[error("environment {kind:?} cannot honour what the task in {} asks for: {what}", dir.display(), kind = kind.to_string())]
    Unsupported {
        /// The environment.
        kind: EnvironmentKind,
        /// The task.
        dir: PathBuf,
        /// What it asks for.
        what: String,
    },
    /// The oracle has nothing to run.
    #[error("agent \"oracle\" needs {}, which is missing", .0.display())]
    NoSolution(PathBuf),
    /// A limit or multiplier that can be no time.
    #[error(transparent)]
    Timeout(#[from] InvalidTimeout),
    /// The model cannot be reached or chosen.
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    /// An agent is not installed.
    #[error(transparent)]
    Agent(#[from] LayerError),
    /// Ctrl-C while an agent was being installed.
    #[error("cancelled while agent {0:?} was being installed; nothing of it is kept")]
    Cancelled(String),
    /// The job has no directory.
    #[error(transparent)]
    Dir(#[from] JobDirError),
    /// The job's directory is of another job.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// A file of the job directory cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Docker, or whatever runs the environments, is not there.
    #[error("cannot use the {kind} environment")]
    Host {
        /// Which one.
        kind: EnvironmentKind,
        /// What it said.
        #[source]
        source: EnvironmentError,
    },
    /// Harbor cannot run the trials.
    #[error(transparent)]
    Harbor(#[from] HarborError),
    /// Environment `harbor` has agents of Harbor's, and no other environment has.
    #[error("agent {agent:?} cannot work in environment {kind}")]
    WrongAgent {
        /// The agent.
        agent: String,
        /// The environment.
        kind: EnvironmentKind,
    },
    /// The embedded proxy did not start.
    #[error("cannot start the embedded proxy")]
    Proxy(#[from] rolltap_proxy::StartError),
    /// A key that no header can hold.
    #[error(transparent)]
    Upstream(#[from] InvalidAddress),
    /// The external proxy cannot be used.
    #[error(transparent)]
    Admin(#[from] AdminError),
}

/// What came of a job.
#[derive(Debug)]
pub struct JobReport {
    /// Where everything lies.
    pub dir: JobDir,
    /// The trials that ran, in the order of tasks and samples.
    pub trials: Vec<TrialOutcome>,
    /// How many trials were planned; fewer ran if the job was cancelled.
    pub planned: usize,
    /// The files that the rollouts were written to; none if they could not be.
    pub rollouts: Option<RolloutFiles>,
    /// What went wrong beside the trials.
    pub problems: Vec<String>,
}

impl JobReport {
    /// Whether everything ran, and whatever failed was the agent's own failure.
    pub fn is_clean(&self) -> bool {
        self.trials.len() == self.planned
            && self.problems.is_empty()
            && !self.trials.iter().any(TrialOutcome::failed_through_no_fault_of_the_agent)
    }
}

/// What all trials of a job share.
pub(crate) struct JobContext {
    pub(crate) started_at: Timestamp,
    pub(crate) dir: JobDir,
    pub(crate) place: Place,
    pub(crate) environment: EnvironmentKind,
    pub(crate) admin: AdminClient,
    pub(crate) history: Option<History>,
    pub(crate) sampling: Map<String, Value>,
    pub(crate) retry: RetryConfig,
    pub(crate) events: Arc<Events>,
    pub(crate) records: Records,
    pub(crate) cancellation: Cancellation,
}

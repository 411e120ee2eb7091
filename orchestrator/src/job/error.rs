//! Why a job did not start.

use std::path::PathBuf;

use rolltap_proxy::{InvalidAddress, InvalidSampling, TlsError};

use super::{JobSettings, PreflightError, ResumeError, RewardRulesError, UnusableTasks};
use crate::admin_client::AdminError;
use crate::agents::LayerError;
use crate::common::words::counted;
use crate::environment::{EnvironmentError, EnvironmentKind};
use crate::failure::InvalidTimeout;
use crate::job_dir::JobDirError;
use crate::task::MissingVariables;
use crate::trial::runner::harbor::HarborError;
use crate::trial::runner::workers::WorkersError;

/// Why a job did not start. Errors after the start are in the job's report.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The list of tasks is empty.
    #[error("no task to run")]
    NoTasks,
    /// The job has more trials than the limit allows.
    #[error(
        "{}, {} and {} make {trials} trials, and a job has at most {}: ask for fewer samples (-k), or split the tasks \
         into several jobs",
        counted(*.tasks, "task"), counted(*.agents, "agent"), counted(*.samples, "sample"), JobSettings::MAX_TRIALS
    )]
    TooManyTrials {
        /// The number of tasks.
        tasks: u64,
        /// The number of agents. Each works at every task.
        agents: u64,
        /// The number of samples of each task by each agent.
        samples: u64,
        /// The product of the three numbers.
        trials: u64,
    },
    /// Another process decides which trials the upstreams get.
    #[error(
        "-n auto needs the job's own proxy, which knows what each upstream has in its KV cache: give the upstreams as \
         --upstream, without --proxy, or give a number"
    )]
    AutoConcurrency,
    /// The cluster cannot be used.
    #[error("cannot run trials on workers")]
    Workers(#[from] WorkersError),
    /// A part of the job cannot be sent to workers.
    #[error("{0}")]
    NotForWorkers(String),
    /// A key that is to override those of requests is not a key of requests.
    #[error(transparent)]
    Sampling(#[from] InvalidSampling),
    /// The list of agents is empty.
    #[error("no agent to run")]
    NoAgents,
    /// Two agents have the same label.
    #[error(
        "two agents of the job are the same, {label:?}: give them different models, or ask for more samples"
    )]
    SameAgent {
        /// The label of both.
        label: String,
    },
    /// Two tasks have the same name and would form one group.
    #[error("two tasks of one dataset are named {name:?}: {} and {}; give each a name of its own", first.display(), second.display())]
    SameName {
        /// The name.
        name: String,
        /// One directory.
        first: PathBuf,
        /// The other directory.
        second: PathBuf,
    },
    /// The name of a task is not a valid id.
    #[error("task in {} has a name that cannot be used", dir.display())]
    TaskName {
        /// The directory of the task.
        dir: PathBuf,
        /// The reason.
        #[source]
        source: rolltap_rollout::ids::InvalidId,
    },
    /// The values by which the job replaces those of its tasks are invalid.
    #[error(transparent)]
    Overrides(#[from] crate::task::TaskError),
    /// A file of a task cannot be read.
    #[error("cannot read task {}", dir.display())]
    TaskFiles {
        /// The directory of the task.
        dir: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// Tasks cannot be used.
    #[error(transparent)]
    Unusable(#[from] UnusableTasks),
    /// The chosen environment does not support the job's additions to its tasks.
    #[error("environment {kind} cannot honour what the job adds: {what}")]
    Adds {
        /// The environment.
        kind: EnvironmentKind,
        /// The addition, and the reason.
        what: String,
    },
    /// A limit or multiplier is not a valid time.
    #[error(transparent)]
    Timeout(#[from] InvalidTimeout),
    /// Variables of this host that tasks refer to are missing.
    #[error(transparent)]
    Variables(#[from] MissingVariables),
    /// The rules for the number to train on do not fit the tasks.
    #[error(transparent)]
    RewardRules(#[from] RewardRulesError),
    /// The model cannot be reached or chosen.
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    /// An agent is not installed.
    #[error(transparent)]
    Agent(#[from] LayerError),
    /// The user pressed Ctrl-C while an agent was being installed.
    #[error("cancelled while agent {0:?} was being installed; the partial installation is removed")]
    Cancelled(String),
    /// The user pressed Ctrl-C while the job was being planned.
    #[error("stopped before any trial began")]
    Stopped,
    /// The job directory cannot be used.
    #[error(transparent)]
    Dir(#[from] JobDirError),
    /// The job directory belongs to another job.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// A file of the job directory cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The environments' host, such as Docker, cannot be used.
    #[error("cannot use the {kind} environment")]
    Host {
        /// The kind of environment.
        kind: EnvironmentKind,
        /// The error of the host.
        #[source]
        source: EnvironmentError,
    },
    /// Harbor cannot run the trials.
    #[error(transparent)]
    Harbor(#[from] HarborError),
    /// The agent does not fit the environment. The environment `harbor` has Harbor's agents, and no other environment
    /// has these.
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
    /// The certificates for the OTLP collector cannot be used.
    #[error("cannot send traces")]
    Traces(#[from] TlsError),
    /// An API key cannot be the value of a header.
    #[error(transparent)]
    Upstream(#[from] InvalidAddress),
    /// The external proxy cannot be used.
    #[error(transparent)]
    Admin(#[from] AdminError),
}

//! Why a job did not start.

use std::path::PathBuf;

use rolltap_proxy::InvalidAddress;

use super::{JobSettings, PreflightError, ResumeError};
use crate::admin_client::AdminError;
use crate::agents::LayerError;
use crate::environment::{EnvironmentError, EnvironmentKind};
use crate::failure::InvalidTimeout;
use crate::job_dir::JobDirError;
use crate::trial::runner::harbor::HarborError;

/// Why a job did not start. Once it has started, what goes wrong is in its report.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// An empty list of tasks.
    #[error("no task to run")]
    NoTasks,
    /// More trials than anybody means.
    #[error(
        "{}, {} and {} make {trials} trials, and a job has at most {}: ask for fewer samples (-k), or split the tasks \
         into several jobs",
        counted(*.tasks, "task"), counted(*.agents, "agent"), counted(*.samples, "sample"), JobSettings::MAX_TRIALS
    )]
    TooManyTrials {
        /// How many tasks.
        tasks: u64,
        /// How many agents, each at every task.
        agents: u64,
        /// How many samples of each task by each agent.
        samples: u64,
        /// All of them together.
        trials: u64,
    },
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
    /// What the job adds to its tasks cannot be had in the chosen environment.
    #[error("environment {kind} cannot honour what the job adds: {what}")]
    Adds {
        /// The environment.
        kind: EnvironmentKind,
        /// What it adds, and why it cannot be.
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
    /// Ctrl-C while the job was being planned.
    #[error("stopped before any trial began")]
    Stopped,
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

/// `1 task`, `2 tasks`
fn counted(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

//! The plan of a trial.

use std::sync::Arc;

use rolltap_proxy::api::PutReward;
use rolltap_rollout::ids::{GroupId, TaskId, TrialId};
use rolltap_rollout::rollout::RewardRule;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Retries, TrialExtras};
use crate::failure::TimeoutPolicy;
use crate::task::{GitOrigin, Task, TaskFiles};
use crate::trial::JobAgent;

/// The values that the client of a trial sets, beyond task and agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TrialRequest {
    /// The keys that override those of every call of the trial.
    pub(crate) sampling: Map<String, Value>,
    /// The object that the proxy's status of the trial returns.
    pub(crate) metadata: Map<String, Value>,
    /// Whether the name of the trial has a longer tail, because the number of trials has no limit.
    pub(crate) has_long_name: bool,
    /// Whether the group closes only by request.
    pub(crate) hold_group: bool,
    /// Ends the trial early. It is cancelled with the job at the latest.
    #[serde(skip)]
    pub(crate) stop: CancellationToken,
}

/// A trial to run.
#[derive(Clone, Debug)]
pub struct TrialPlan {
    /// Harbor's identifier of the trial. The name is another one.
    pub id: Uuid,
    /// The trial's name: its folder, and its id at the proxy.
    pub name: TrialId,
    /// The task.
    pub task: Arc<Task>,
    /// The agent.
    pub agent: Arc<JobAgent>,
    /// The dataset of the task.
    pub source: Option<String>,
    /// The repository of the task. `None` for a task of this host.
    pub git: Option<GitOrigin>,
    /// The files of the task. Their checksum is the version of the task.
    pub(crate) task_files: Arc<TaskFiles>,
    /// The task's id at the proxy.
    pub task_id: TaskId,
    /// The group of the trial: the samples of this task in this job.
    pub group_id: GroupId,
    /// The number of samples in the group.
    pub group_size: u32,
    /// The index of the sample, from 0.
    pub sample_index: u32,
    /// The number of the attempt at this sample, from 0. A later attempt supersedes earlier ones.
    pub attempt: u32,
    /// The time limits of the phases.
    pub timeouts: TimeoutPolicy,
    /// The job's additions to the task.
    pub extras: Arc<TrialExtras>,
    /// The rule that makes the number to train on. `None` for the entry `reward`, or else the only entry.
    pub reward_rule: Option<RewardRule>,
    /// The values that its client sets.
    pub(crate) request: Arc<TrialRequest>,
    /// The earlier attempts at this sample in this run of the job.
    pub retries: Retries,
    /// Attempts that this attempt supersedes, each with its reward. The rewards are set once this attempt is open. A
    /// group closes when every sample has a reward, and then accepts no further attempt.
    pub supersedes: Vec<(TrialId, PutReward)>,
}

//! What is known of a trial before it runs.

use std::sync::Arc;

use rolltap_proxy::api::PutReward;
use rolltap_rollout::ids::{GroupId, TaskId, TrialId};
use uuid::Uuid;

use super::TrialExtras;
use crate::failure::TimeoutPolicy;
use crate::task::{GitOrigin, Task};
use crate::trial::JobAgent;

/// One trial to run.
#[derive(Clone, Debug)]
pub struct TrialPlan {
    /// Harbor's identifier of a trial, beside its name.
    pub id: Uuid,
    /// The trial's name: its folder, and its id at the proxy.
    pub name: TrialId,
    /// What to do.
    pub task: Arc<Task>,
    /// Who does it.
    pub agent: Arc<JobAgent>,
    /// The dataset that the task counts to.
    pub source: Option<String>,
    /// Where the task came from, if it came from elsewhere.
    pub git: Option<GitOrigin>,
    /// Which version of the task: a hash over its files.
    pub task_checksum: String,
    /// The task's name, as the proxy takes it.
    pub task_id: TaskId,
    /// The samples of this task in this job.
    pub group_id: GroupId,
    /// How many there are.
    pub group_size: u32,
    /// Which one this is, from 0.
    pub sample_index: u32,
    /// Which try at this sample, from 0. A later one supersedes those before it.
    pub attempt: u32,
    /// How long its phases may take.
    pub timeouts: TimeoutPolicy,
    /// What the job adds to the task.
    pub extras: Arc<TrialExtras>,
    /// How many attempts at this sample this run of the job has made before.
    pub retries: u32,
    /// Attempts whose place this one takes, each with the reward that it is given once this one is open: a group in which
    /// every sample has one closes, and takes no further attempt.
    pub supersedes: Vec<(TrialId, PutReward)>,
}

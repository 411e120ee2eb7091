//! The description of a trial that a worker gets: everything that its plan has, with the job's configuration and the task as
//! objects.

use std::path::{Component, Path};
use std::sync::Arc;

use rolltap_cluster::objects::Content;
use rolltap_proxy::api::PutReward;
use rolltap_rollout::ids::{GroupId, TaskId, TrialId};
use rolltap_rollout::rollout::RewardRule;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::failure::TimeoutPolicy;
use crate::task::{GitOrigin, Task, TaskFiles};
use crate::trial::{JobAgent, Retries, TrialExtras, TrialPlan, TrialRequest};

/// The version of the description.
const FORMAT: u32 = 1;

/// A trial for a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TrialDescription {
    format: u32,
    pub(crate) job: DescribedJob,
    pub(crate) task: DescribedTask,
    /// The label of the agent among those of the job.
    pub(crate) agent: String,
    id: Uuid,
    pub(crate) name: TrialId,
    task_id: TaskId,
    group_id: GroupId,
    group_size: u32,
    sample_index: u32,
    attempt: u32,
    reward_rule: Option<RewardRule>,
    request: TrialRequest,
    retries: Retries,
    supersedes: Vec<(TrialId, PutReward)>,
}

/// The job of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct DescribedJob {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    /// The object with its configuration: the JSON of `config.json`.
    pub(crate) config: Content,
}

/// The task of a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DescribedTask {
    /// The object with its directory.
    pub(crate) content: Content,
    /// The name of its directory.
    pub(crate) directory: String,
    /// The checksum of its files.
    pub(crate) checksum: String,
    source: Option<String>,
    git: Option<GitOrigin>,
}

/// Why a description cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DescriptionError {
    #[error(
        "the trial has format {0}, and this rolltap reads format {FORMAT}: run the same version everywhere"
    )]
    Format(u32),
    #[error("the description of the trial cannot be read; run the same version of rolltap everywhere: {0}")]
    Content(#[from] serde_json::Error),
    #[error("the directory of the task has the name {0:?}, which is not usable")]
    Directory(String),
}

/// The parts of a plan that a worker makes from the job's configuration and from the task.
pub(crate) struct PlanParts {
    pub(crate) task: Task,
    pub(crate) task_files: TaskFiles,
    pub(crate) agent: Arc<JobAgent>,
    /// The time limits of the job.
    pub(crate) timeouts: TimeoutPolicy,
    /// The additions of the job.
    pub(crate) extras: TrialExtras,
}

impl TrialDescription {
    pub(super) fn of(plan: &TrialPlan, job: DescribedJob, content: Content) -> Self {
        let directory = plan.task.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let task = DescribedTask {
            content,
            directory,
            checksum: plan.task_files.checksum().to_owned(),
            source: plan.source.clone(),
            git: plan.git.clone(),
        };
        Self {
            format: FORMAT,
            job,
            task,
            agent: plan.agent.label(),
            id: plan.id,
            name: plan.name.clone(),
            task_id: plan.task_id.clone(),
            group_id: plan.group_id.clone(),
            group_size: plan.group_size,
            sample_index: plan.sample_index,
            attempt: plan.attempt,
            reward_rule: plan.reward_rule.clone(),
            request: (*plan.request).clone(),
            retries: plan.retries,
            supersedes: plan.supersedes.clone(),
        }
    }

    /// Reads a description.
    ///
    /// # Errors
    /// It is of another version of rolltap, or damaged.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, DescriptionError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let Head { format } = serde_json::from_slice(json)?;
        if format != FORMAT {
            return Err(DescriptionError::Format(format));
        }
        let description: Self = serde_json::from_slice(json)?;
        let directory = &description.task.directory;
        let mut components = Path::new(directory).components();
        match (components.next(), components.next()) {
            (Some(Component::Normal(name)), None) if name.to_str() == Some(directory) => Ok(description),
            _ => Err(DescriptionError::Directory(directory.clone())),
        }
    }

    /// Returns the plan of the trial.
    pub(crate) fn plan(self, parts: PlanParts, request: TrialRequest) -> TrialPlan {
        let PlanParts { task, task_files, agent, timeouts, extras } = parts;
        TrialPlan {
            id: self.id,
            name: self.name,
            task: Arc::new(task),
            source: self.task.source,
            git: self.task.git,
            task_files: Arc::new(task_files),
            task_id: self.task_id,
            group_id: self.group_id,
            group_size: self.group_size,
            sample_index: self.sample_index,
            attempt: self.attempt,
            timeouts: agent.timeouts.over(timeouts),
            extras: Arc::new(agent.adds_to(&extras)),
            agent,
            reward_rule: self.reward_rule,
            request: Arc::new(request),
            retries: self.retries,
            supersedes: self.supersedes,
        }
    }

    /// Returns the values that the client of the trial set.
    pub(crate) fn request(&self) -> &TrialRequest {
        &self.request
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn description() -> Value {
        let content = json!({"sha256": "0".repeat(64), "bytes": 1});
        json!({
            "format": 1,
            "job": {"id": Uuid::nil(), "name": "job", "config": content},
            "task": {"content": content, "directory": "task", "checksum": "", "source": null, "git": null},
            "agent": "oracle", "id": Uuid::nil(), "name": "a", "task_id": "t", "group_id": "g", "group_size": 1,
            "sample_index": 0, "attempt": 0, "reward_rule": null, "retries": {"failures": 0, "losses": 0}, "supersedes": [],
            "request": {"sampling": {}, "metadata": {}, "has_long_name": false, "hold_group": false},
        })
    }

    fn error(change: impl FnOnce(&mut Value)) -> String {
        let mut value = description();
        change(&mut value);
        TrialDescription::parse(value.to_string().as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn another_format_and_a_directory_elsewhere_are_refused() {
        TrialDescription::parse(description().to_string().as_bytes()).unwrap();
        assert!(error(|value| value["format"] = json!(2)).contains("same version"));
        assert!(error(|value| value["name"] = json!("../x")).contains("cannot be read"));
        for name in ["", "..", ".", "/etc", "a/b", "a/"] {
            let refused = error(|value| value["task"]["directory"] = json!(name));
            assert!(refused.contains("not usable"), "{name}: {refused}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_description_panics(cut in 0_usize..600, byte: u8) {
            let mut text = description().to_string().into_bytes();
            let cut = cut.min(text.len() - 1);
            text[cut] = byte;
            let _ = TrialDescription::parse(&text);
            let _ = TrialDescription::parse(&text[..cut]);
        }
    }
}

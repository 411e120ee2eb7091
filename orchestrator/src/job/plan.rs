//! Plans the trials of a job and their names.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use rolltap_rollout::ids::{GroupId, InvalidId, TaskId, TrialId};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::tasks::JobTask;
use super::{JobError, RewardRules};
use crate::failure::TimeoutPolicy;
use crate::task::TaskFiles;
use crate::trial::JobAgent;
use crate::trial::{Retries, TrialExtras, TrialPlan, TrialRequest};

/// The maximum number of characters of a task's name in a trial's name, as in Harbor.
const TASK_PART: usize = 32;
const TAIL_LENGTH: usize = 7;
/// Without a limit of trials, names with shorter tails would meet.
const LONG_TAIL_LENGTH: usize = 16;
/// An alphabet without letters and digits that look alike, such as `l` and `1`. Its length of 32 divides 256, so that
/// all letters are equally likely.
const TAIL_ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// The input from which all trials of a job are planned.
pub(super) struct Planner<'a> {
    pub(super) job_id: Uuid,
    pub(super) job_name: &'a str,
    pub(super) agents: &'a [Arc<JobAgent>],
    pub(super) samples: NonZeroU32,
    pub(super) timeouts: TimeoutPolicy,
    pub(super) extras: &'a TrialExtras,
    pub(super) reward_rules: &'a RewardRules,
    pub(super) request: &'a Arc<TrialRequest>,
}

impl Planner<'_> {
    /// Returns the first trial of each group, in the job's order. [`trial`] derives the other trials from it, so the
    /// size of a plan does not depend on the number of samples.
    ///
    /// Planning yields to the runtime between tasks, because it reads all files of each task. A job can be stopped in
    /// between.
    pub(super) async fn plan(&self, tasks: Vec<JobTask>) -> Result<Vec<TrialPlan>, JobError> {
        let ambiguous = distinct_names(&tasks)?;
        distinct_agents(self.agents)?;
        let mut plans = Vec::new();
        for task in tasks {
            tokio::task::yield_now().await;
            plans.extend(self.groups(task, &ambiguous)?);
        }
        if plans.is_empty() { Err(JobError::NoTasks) } else { Ok(plans) }
    }

    fn groups(&self, task: JobTask, ambiguous: &BTreeSet<String>) -> Result<Vec<TrialPlan>, JobError> {
        let reward_rule = self.reward_rules.of(&task)?.cloned();
        let JobTask { task, source, git } = task;
        // A name that two datasets share is preceded by the name of the dataset.
        let dataset = source.as_ref().filter(|_| ambiguous.contains(&task.name));
        let dataset = dataset.map(|source| format!("{source}/")).unwrap_or_default();
        let task = Arc::new(task);
        let invalid = |source: InvalidId| JobError::TaskName { dir: task.dir.clone(), source };
        let files = TaskFiles::read(&task.dir);
        let files = files.map_err(|source| JobError::TaskFiles { dir: task.dir.clone(), source })?;
        for (link, target) in files.links_out() {
            let (dir, link, target) = (task.dir.display(), link.display(), target.display());
            tracing::warn!(
                "{dir}: {link} links to {target}, outside of the task: environments get the link alone"
            );
        }
        let files = Arc::new(files);
        let task_id = TaskId::new(&task.name).map_err(invalid)?;
        let group = |agent: &Arc<JobAgent>| {
            // The label of an agent is needed only to distinguish it from others.
            let label = if self.agents.len() > 1 { format!("{}/", agent.label()) } else { String::new() };
            let group_id = format!("{}/{label}{dataset}{}", self.job_name, task.name);
            let group_id = GroupId::new(group_id).map_err(invalid)?;
            Ok(TrialPlan {
                id: Uuid::now_v7(),
                name: trial_name(self.job_id, &group_id, &task.name, (0, 0), tail_length(self.request))
                    .map_err(invalid)?,
                task: Arc::clone(&task),
                source: source.clone(),
                git: git.clone(),
                task_files: Arc::clone(&files),
                agent: Arc::clone(agent),
                task_id: task_id.clone(),
                group_id,
                group_size: self.samples.get(),
                sample_index: 0,
                attempt: 0,
                timeouts: agent.timeouts.over(self.timeouts),
                extras: Arc::new(agent.adds_to(self.extras)),
                reward_rule: reward_rule.clone(),
                request: Arc::clone(self.request),
                retries: Retries::default(),
                supersedes: Vec::new(),
            })
        };
        self.agents.iter().map(group).collect()
    }
}

/// Returns the names that several datasets share. Fails if a name occurs twice within one dataset, or twice among the
/// tasks without a dataset.
fn distinct_names(tasks: &[JobTask]) -> Result<BTreeSet<String>, JobError> {
    let mut seen: BTreeMap<(&Option<String>, &str), &Path> = BTreeMap::new();
    let mut names = BTreeSet::new();
    let mut ambiguous = BTreeSet::new();
    for JobTask { task, source, .. } in tasks {
        if let Some(first) = seen.insert((source, &task.name), &task.dir) {
            let (first, second) = (first.to_owned(), task.dir.clone());
            return Err(JobError::SameName { name: task.name.clone(), first, second });
        }
        if !names.insert(task.name.as_str()) {
            ambiguous.insert(task.name.clone());
        }
    }
    Ok(ambiguous)
}

/// Returns the plan of another sample of the same group, or of another attempt at a sample.
pub(super) fn trial(
    of_group: &TrialPlan,
    job_id: Uuid,
    sample_index: u32,
    attempt: u32,
) -> Result<TrialPlan, InvalidId> {
    let TrialPlan { group_id, task, request, .. } = of_group;
    let name = trial_name(job_id, group_id, &task.name, (sample_index, attempt), tail_length(request))?;
    Ok(TrialPlan {
        id: Uuid::now_v7(),
        name,
        sample_index,
        attempt,
        retries: Retries::default(),
        supersedes: Vec::new(),
        ..of_group.clone()
    })
}

/// Checks that no two agents have the same label, and that there is an agent.
fn distinct_agents(agents: &[Arc<JobAgent>]) -> Result<(), JobError> {
    let mut seen = BTreeSet::new();
    for agent in agents {
        let label = agent.label();
        if !seen.insert(label.clone()) {
            return Err(JobError::SameAgent { label });
        }
    }
    if agents.is_empty() { Err(JobError::NoAgents) } else { Ok(()) }
}

fn tail_length(request: &TrialRequest) -> usize {
    if request.has_long_name { LONG_TAIL_LENGTH } else { TAIL_LENGTH }
}

/// Returns a name like Harbor's `<task>__<7>`. The tail is derived from the ids of the job and group, the sample and
/// the attempt. An attempt has the same name in every run of its job, and no two jobs share a name.
fn trial_name(
    job_id: Uuid,
    group: &GroupId,
    task: &str,
    (sample_index, attempt): (u32, u32),
    tail_length: usize,
) -> Result<TrialId, InvalidId> {
    let last = task.rsplit('/').next().unwrap_or(task);
    let safe: String = last
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' })
        .take(TASK_PART)
        .collect();
    // An id begins with a letter or a digit.
    let safe = safe.trim_start_matches(['.', '_', '-']).trim_end_matches(['_', '-']);
    let safe = if safe.is_empty() { "task" } else { safe };
    let digest = Sha256::new()
        .chain_update(job_id.as_bytes())
        .chain_update(group.as_str().as_bytes())
        // The zero byte separates the group's name from the numbers.
        .chain_update([0])
        .chain_update(sample_index.to_le_bytes())
        .chain_update(attempt.to_le_bytes())
        .finalize();
    let letter = |byte: &u8| TAIL_ALPHABET.get(usize::from(byte % 32)).copied().map(char::from);
    let tail: String = digest.iter().take(tail_length).filter_map(letter).collect();
    TrialId::new(format!("{safe}__{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Uuid = Uuid::from_u128(7);

    fn name(job: Uuid, group: &str, task: &str, sample: u32, attempt: u32) -> String {
        trial_name(job, &GroupId::new(group).unwrap(), task, (sample, attempt), TAIL_LENGTH)
            .unwrap()
            .to_string()
    }

    #[test]
    fn names_look_like_harbors_and_follow_from_what_they_name() {
        let task = "org/hello-world";
        let first = name(JOB, "job/org/hello-world", task, 0, 0);
        let (short, tail) = first.split_once("__").unwrap();
        assert_eq!((short, tail.len()), ("hello-world", 7));
        assert_eq!(first, name(JOB, "job/org/hello-world", task, 0, 0));
        assert_ne!(first, name(JOB, "job/org/hello-world", task, 1, 0));
        assert_ne!(first, name(JOB, "job/org/hello-world", task, 0, 1), "a retry has a folder of its own");
        assert_ne!(first, name(JOB, "job/nop/org/hello-world", task, 0, 0));
        assert_ne!(first, name(Uuid::from_u128(8), "job/org/hello-world", task, 0, 0));
    }

    proptest::proptest! {
        #[test]
        fn any_task_name_gives_a_usable_trial_name(task in "\\PC{0,80}", sample: u32) {
            let name = name(JOB, "group", &task, sample, 0);
            proptest::prop_assert!(name.len() <= TASK_PART + 2 + TAIL_LENGTH);
        }
    }
}

//! Which trials a job consists of, and what they are called.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use rolltap_rollout::ids::{GroupId, InvalidId, TaskId, TrialId};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::tasks::JobTask;
use super::{JobAgent, JobError, checksum};
use crate::trial::{TimeoutPolicy, TrialExtras, TrialPlan};

/// Harbor's names keep so much of the task's.
const TASK_PART: usize = 32;
const TAIL_LENGTH: usize = 7;
/// No letters or digits that are mistaken for one another.
const TAIL_ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// The trials of a job, the samples of a task by an agent next to each other so that groups are whole early.
pub(super) fn plan(
    job_id: Uuid,
    job_name: &str,
    tasks: Vec<JobTask>,
    agents: &[Arc<JobAgent>],
    samples: NonZeroU32,
    timeouts: TimeoutPolicy,
    extras: &TrialExtras,
) -> Result<Vec<TrialPlan>, JobError> {
    let ambiguous = distinct_names(&tasks)?;
    distinct_agents(agents)?;
    let mut plans = Vec::new();
    for JobTask { task, source, git } in tasks {
        // A name that two datasets have is told by theirs.
        let dataset = source.as_ref().filter(|_| ambiguous.contains(&task.name));
        let dataset = dataset.map(|source| format!("{source}/")).unwrap_or_default();
        let task = Arc::new(task);
        let invalid = |source: InvalidId| JobError::TaskName { dir: task.dir.clone(), source };
        let checksum = checksum::of_dir(&task.dir);
        let checksum = checksum.map_err(|source| JobError::TaskFiles { dir: task.dir.clone(), source })?;
        let task_id = TaskId::new(&task.name).map_err(invalid)?;
        for agent in agents {
            let extras = Arc::new(agent.adds_to(extras));
            // The job's only agent needs no name to be told by.
            let label = if agents.len() > 1 { format!("{}/", agent.label()) } else { String::new() };
            let group_id = format!("{job_name}/{label}{dataset}{}", task.name);
            let group_id = GroupId::new(group_id).map_err(invalid)?;
            for sample_index in 0..samples.get() {
                plans.push(TrialPlan {
                    id: Uuid::now_v7(),
                    name: trial_name(job_id, &group_id, &task.name, sample_index, 0).map_err(invalid)?,
                    task: Arc::clone(&task),
                    source: source.clone(),
                    git: git.clone(),
                    task_checksum: checksum.clone(),
                    agent: Arc::clone(agent),
                    task_id: task_id.clone(),
                    group_id: group_id.clone(),
                    group_size: samples.get(),
                    sample_index,
                    attempt: 0,
                    timeouts: agent.timeouts.over(timeouts),
                    extras: Arc::clone(&extras),
                    retries: 0,
                    supersedes: Vec::new(),
                });
            }
        }
    }
    if plans.is_empty() { Err(JobError::NoTasks) } else { Ok(plans) }
}

/// Names that several datasets have. Within one, and among tasks of none, each has its own.
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

/// The same sample once more, as a trial of its own that supersedes this one.
pub(super) fn attempt(plan: &TrialPlan, job_id: Uuid, attempt: u32) -> Result<TrialPlan, InvalidId> {
    let name = trial_name(job_id, &plan.group_id, &plan.task.name, plan.sample_index, attempt)?;
    Ok(TrialPlan { id: Uuid::now_v7(), name, attempt, supersedes: Vec::new(), ..plan.clone() })
}

/// Two agents whose groups nobody could tell apart.
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

/// Like Harbor's `<task>__<7>`, but the tail follows from the job's id, the group, the sample and the attempt: the same
/// attempt of the same job has the same name whenever it is asked for, and no two jobs share one.
fn trial_name(
    job_id: Uuid,
    group: &GroupId,
    task: &str,
    sample_index: u32,
    attempt: u32,
) -> Result<TrialId, InvalidId> {
    let last = task.rsplit('/').next().unwrap_or(task);
    let safe: String = last
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' })
        .take(TASK_PART)
        .collect();
    let safe = safe.trim_start_matches(['.', '_', '-']).trim_end_matches(['_', '-']);
    let safe = if safe.is_empty() { "task" } else { safe };
    let digest = Sha256::new()
        .chain_update(job_id.as_bytes())
        .chain_update(group.as_str().as_bytes())
        .chain_update([0])
        .chain_update(sample_index.to_le_bytes())
        .chain_update(attempt.to_le_bytes())
        .finalize();
    let letter = |byte: &u8| TAIL_ALPHABET.get(usize::from(byte % 32)).copied().map(char::from);
    let tail: String = digest.iter().take(TAIL_LENGTH).filter_map(letter).collect();
    TrialId::new(format!("{safe}__{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Uuid = Uuid::from_u128(7);

    fn name(job: Uuid, group: &str, task: &str, sample: u32, attempt: u32) -> String {
        trial_name(job, &GroupId::new(group).unwrap(), task, sample, attempt).unwrap().to_string()
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

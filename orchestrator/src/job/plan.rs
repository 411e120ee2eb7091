//! Which trials a job consists of, and what they are called.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use rolltap_rollout::ids::{GroupId, InvalidId, TaskId, TrialId};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{JobError, checksum};
use crate::task::Task;
use crate::trial::TrialPlan;

/// Harbor's names keep so much of the task's.
const TASK_PART: usize = 32;
const TAIL_LENGTH: usize = 7;
/// No letters or digits that are mistaken for one another.
const TAIL_ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// The trials of a job, the samples of a task next to each other so that groups are whole early.
pub(super) fn plan(
    job_id: Uuid,
    job_name: &str,
    tasks: Vec<Task>,
    samples: NonZeroU32,
) -> Result<Vec<TrialPlan>, JobError> {
    distinct_names(&tasks)?;
    let mut plans = Vec::new();
    for task in tasks {
        let task = Arc::new(task);
        let invalid = |source: InvalidId| JobError::TaskName { dir: task.dir.clone(), source };
        let checksum = checksum::of_dir(&task.dir);
        let checksum = checksum.map_err(|source| JobError::TaskFiles { dir: task.dir.clone(), source })?;
        let task_id = TaskId::new(&task.name).map_err(invalid)?;
        let group_id = GroupId::new(format!("{job_name}/{}", task.name)).map_err(invalid)?;
        for sample_index in 0..samples.get() {
            plans.push(TrialPlan {
                id: Uuid::now_v7(),
                name: trial_name(job_id, &task.name, sample_index).map_err(invalid)?,
                task: Arc::clone(&task),
                task_checksum: checksum.clone(),
                task_id: task_id.clone(),
                group_id: group_id.clone(),
                group_size: samples.get(),
                sample_index,
            });
        }
    }
    if plans.is_empty() { Err(JobError::NoTasks) } else { Ok(plans) }
}

fn distinct_names(tasks: &[Task]) -> Result<(), JobError> {
    let mut seen = BTreeMap::new();
    for task in tasks {
        if let Some(first) = seen.insert(&task.name, &task.dir) {
            let (first, second) = (first.clone(), task.dir.clone());
            return Err(JobError::SameName { name: task.name.clone(), first, second });
        }
    }
    Ok(())
}

/// Like Harbor's `<task>__<7>`, but the tail follows from the job's id, the task and the sample: the same sample of the
/// same job has the same name whenever it is asked for, and no two jobs share one.
fn trial_name(job_id: Uuid, task: &str, sample_index: u32) -> Result<TrialId, InvalidId> {
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
        .chain_update(task.as_bytes())
        .chain_update([0])
        .chain_update(sample_index.to_le_bytes())
        .finalize();
    let letter = |byte: &u8| TAIL_ALPHABET.get(usize::from(byte % 32)).copied().map(char::from);
    let tail: String = digest.iter().take(TAIL_LENGTH).filter_map(letter).collect();
    TrialId::new(format!("{safe}__{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Uuid = Uuid::from_u128(7);

    fn name(job: Uuid, task: &str, sample: u32) -> String {
        trial_name(job, task, sample).unwrap().to_string()
    }

    #[test]
    fn names_look_like_harbors_and_follow_from_what_they_name() {
        let first = name(JOB, "org/hello-world", 0);
        let (task, tail) = first.split_once("__").unwrap();
        assert_eq!((task, tail.len()), ("hello-world", 7));
        assert_eq!(first, name(JOB, "org/hello-world", 0));
        assert_ne!(first, name(JOB, "org/hello-world", 1));
        assert_ne!(first, name(JOB, "other/hello-world", 0));
        assert_ne!(first, name(Uuid::from_u128(8), "org/hello-world", 0));
    }

    proptest::proptest! {
        #[test]
        fn any_task_name_gives_a_usable_trial_name(task in "\\PC{0,80}", sample: u32) {
            let name = name(JOB, &task, sample);
            proptest::prop_assert!(name.len() <= TASK_PART + 2 + TAIL_LENGTH);
        }
    }
}

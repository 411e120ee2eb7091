//! What marks everything of ours at the engine, so that it can be found, and removed by whoever owns it.

use std::collections::HashMap;

use uuid::Uuid;

use super::process_owner::{Owner, OwnerState};
use crate::environment::{JobLabel, TrialLabel};

pub(crate) const JOB: &str = "dev.rolltap.job";
pub(crate) const TRIAL: &str = "dev.rolltap.trial";
const RUN: &str = "dev.rolltap.run";
const OWNER: &str = "dev.rolltap.owner";
const OWNER_PID: &str = "dev.rolltap.owner-pid";

/// On everything of one trial's services.
pub(crate) const PROJECT: &str = "dev.rolltap.project";
/// On images that are kept for later jobs; its value is nothing that anybody reads.
pub(crate) const KEPT_IMAGE: &str = "dev.rolltap.image";
/// Which task a kept image was first built for.
pub(crate) const TASK: &str = "dev.rolltap.task";

/// On networks that all jobs share; its value is what is reached on them.
pub(crate) const SHARED_NETWORK: &str = "dev.rolltap.network";

/// On everything of ours that ends with its job; for filters.
pub(crate) const ANY: &str = RUN;

/// The labels of one job.
#[derive(Debug)]
pub(crate) struct Labels {
    job: String,
    run: Uuid,
    owner: Option<Owner>,
}

impl Labels {
    pub(crate) fn new(job: &JobLabel) -> Self {
        Self { job: job.0.clone(), run: Uuid::now_v7(), owner: Owner::current() }
    }

    /// Finds everything of this job and nothing else.
    pub(crate) fn filter(&self) -> String {
        format!("{RUN}={}", self.run)
    }

    /// For what the whole job shares.
    pub(crate) fn of_job(&self) -> HashMap<String, String> {
        let mut labels = HashMap::from([
            (JOB.to_owned(), self.job.clone()),
            (RUN.to_owned(), self.run.to_string()),
            (OWNER_PID.to_owned(), std::process::id().to_string()),
        ]);
        labels.extend(self.owner.as_ref().map(|owner| (OWNER.to_owned(), owner.to_string())));
        labels
    }

    /// For what belongs to one trial.
    pub(crate) fn of_trial(&self, trial: &TrialLabel) -> HashMap<String, String> {
        let mut labels = self.of_job();
        labels.insert(TRIAL.to_owned(), trial.0.clone());
        labels
    }

    /// For a container that is kept when its trial is over. It is nobody's, so nothing but its user removes it.
    pub(crate) fn of_kept_trial(&self, trial: &TrialLabel) -> HashMap<String, String> {
        HashMap::from([(KEPT_CONTAINER.to_owned(), self.job.clone()), (TRIAL.to_owned(), trial.0.clone())])
    }
}

/// On containers that outlive their jobs, because a user wants to look at them.
const KEPT_CONTAINER: &str = "dev.rolltap.kept";

/// For an image that outlives its job. Without the job's labels: it is nobody's.
pub(crate) fn of_kept_image(task: &str) -> HashMap<String, String> {
    HashMap::from([(KEPT_IMAGE.to_owned(), "kept".to_owned()), (TASK.to_owned(), task.to_owned())])
}

/// For a network that outlives its job, as an image does.
pub(crate) fn of_shared_network(access: &str) -> HashMap<String, String> {
    HashMap::from([(SHARED_NETWORK.to_owned(), access.to_owned())])
}

/// Whether the process that started something still runs; none for what belongs to no process.
pub(crate) fn owner_state(labels: &HashMap<String, String>, engine_is_here: bool) -> Option<OwnerState> {
    labels.get(RUN)?;
    let owner = labels.get(OWNER).and_then(|owner| Owner::parse(owner));
    Some(owner.map_or(OwnerState::Unseen, |owner| owner.state(engine_is_here)))
}

/// A name that tells people what it is for, and that nothing else has.
pub(crate) fn unique_name(name: &str, id: Uuid) -> String {
    // The end of a version 7 id is random.
    let id = id.simple().to_string();
    let tail = id.get(id.len().saturating_sub(8)..).unwrap_or_default();
    format!("rolltap-{}-{tail}", slug(name))
}

/// Letters, digits and single dashes, at most 32: fit for names at the engine.
pub(crate) fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let slug = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    let slug: String = slug.chars().take(32).collect();
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "task".to_owned() } else { slug.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_has_is_its_process_s_and_what_is_kept_nobody_s() {
        let living = Labels::new(&JobLabel::new("job"));
        assert_eq!(owner_state(&living.of_job(), true), Some(OwnerState::Alive));
        assert_eq!(owner_state(&of_kept_image("task"), true), None);
        let mut unknown = living.of_job();
        unknown.remove(OWNER);
        assert_eq!(owner_state(&unknown, true), Some(OwnerState::Unseen));
    }

    #[test]
    fn names_fit_the_engine() {
        for (name, expected) in [
            ("org/Hello World", "org-hello-world"),
            ("--", "task"),
            ("ü_x", "x"),
            ("a-very-long-name-of-a-task-that-is-cut", "a-very-long-name-of-a-task-that"),
        ] {
            assert_eq!(slug(name), expected);
        }
    }
}

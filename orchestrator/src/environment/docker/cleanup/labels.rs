//! The labels of rolltap's objects at the engine, by which they are found and removed by their owner.

use std::collections::HashMap;

use uuid::Uuid;

use super::process_owner::{Owner, OwnerState};
use crate::environment::{JobLabel, TrialLabel};

pub(crate) const JOB: &str = "dev.rolltap.job";
pub(crate) const TRIAL: &str = "dev.rolltap.trial";
const RUN: &str = "dev.rolltap.run";
const OWNER: &str = "dev.rolltap.owner";
const OWNER_PID: &str = "dev.rolltap.owner-pid";

/// The label of every object of one trial's services.
pub(crate) const PROJECT: &str = "dev.rolltap.project";
/// The label of images that remain for later jobs. Its value has no meaning.
pub(crate) const KEPT_IMAGE: &str = "dev.rolltap.image";
/// The task for which a remaining image was first built.
pub(crate) const TASK: &str = "dev.rolltap.task";

/// The label of networks that all jobs share. Its value is the network's access.
pub(crate) const SHARED_NETWORK: &str = "dev.rolltap.network";

/// The label of every object that ends with its job, for filters.
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

    /// Returns the filter that matches every object of this job, and no other.
    pub(crate) fn filter(&self) -> String {
        format!("{RUN}={}", self.run)
    }

    /// Returns the labels of an object that the whole job shares.
    pub(crate) fn of_job(&self) -> HashMap<String, String> {
        let mut labels = HashMap::from([
            (JOB.to_owned(), self.job.clone()),
            (RUN.to_owned(), self.run.to_string()),
            (OWNER_PID.to_owned(), std::process::id().to_string()),
        ]);
        labels.extend(self.owner.as_ref().map(|owner| (OWNER.to_owned(), owner.to_string())));
        labels
    }

    /// Returns the labels of an object of one trial.
    pub(crate) fn of_trial(&self, trial: &TrialLabel) -> HashMap<String, String> {
        let mut labels = self.of_job();
        labels.insert(TRIAL.to_owned(), trial.0.clone());
        labels
    }

    /// Returns the labels of a container that remains after its trial. It has no owner, so that only the user removes
    /// it.
    pub(crate) fn of_kept_trial(&self, trial: &TrialLabel) -> HashMap<String, String> {
        HashMap::from([(KEPT_CONTAINER.to_owned(), self.job.clone()), (TRIAL.to_owned(), trial.0.clone())])
    }
}

/// The label of containers that outlive their jobs, for a user to inspect.
pub(crate) const KEPT_CONTAINER: &str = "dev.rolltap.kept";

/// Returns the labels of an image that outlives its job. It has no owner.
pub(crate) fn of_kept_image(task: &str) -> HashMap<String, String> {
    HashMap::from([(KEPT_IMAGE.to_owned(), "kept".to_owned()), (TASK.to_owned(), task.to_owned())])
}

/// Returns the labels of a network that outlives its job.
pub(crate) fn of_shared_network(access: &str) -> HashMap<String, String> {
    HashMap::from([(SHARED_NETWORK.to_owned(), access.to_owned())])
}

/// Returns whether the process that created an object still runs, or `None` if the object has no owner.
pub(crate) fn owner_state(labels: &HashMap<String, String>, engine_is_here: bool) -> Option<OwnerState> {
    labels.get(RUN)?;
    let owner = labels.get(OWNER).and_then(|owner| Owner::parse(owner));
    // Without a readable owner, there is no proof that the process has ended.
    Some(owner.map_or(OwnerState::Unseen, |owner| owner.state(engine_is_here)))
}

/// Returns a unique name that shows people the object's purpose.
pub(crate) fn unique_name(name: &str, id: Uuid) -> String {
    // The end of a version 7 UUID is random; its start is a time.
    let id = id.simple().to_string();
    let tail = id.get(id.len().saturating_sub(8)..).unwrap_or_default();
    format!("rolltap-{}-{tail}", slug(name))
}

/// Converts a name to at most 32 letters, digits and single dashes, which are valid in names at the engine.
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

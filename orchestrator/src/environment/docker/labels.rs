//! What marks everything of ours at the engine, so that it can be found, and removed by whoever owns it.

use std::collections::HashMap;
use std::fs;

use uuid::Uuid;

use crate::environment::{JobLabel, TrialLabel};

const JOB: &str = "dev.rolltap.job";
const TRIAL: &str = "dev.rolltap.trial";
const RUN: &str = "dev.rolltap.run";
const OWNER: &str = "dev.rolltap.owner";
const OWNER_PID: &str = "dev.rolltap.owner-pid";

/// On images that are kept for later jobs; its value is nothing that anybody reads.
pub(super) const KEPT_IMAGE: &str = "dev.rolltap.image";
/// Which task a kept image was first built for.
pub(super) const TASK: &str = "dev.rolltap.task";

/// On everything of ours that ends with its job; for filters.
pub(super) const ANY: &str = RUN;

/// The labels of one job.
#[derive(Debug)]
pub(super) struct Labels {
    job: String,
    run: Uuid,
    owner: Option<Owner>,
}

impl Labels {
    pub(super) fn new(job: &JobLabel) -> Self {
        Self { job: job.0.clone(), run: Uuid::now_v7(), owner: Owner::current() }
    }

    /// A name for something of the job that no other job gives.
    pub(super) fn unique_name(&self) -> String {
        unique_name(&self.job, self.run)
    }

    /// Finds everything of this job and nothing else.
    pub(super) fn filter(&self) -> String {
        run_filter(&self.run.to_string())
    }

    /// For what the whole job shares.
    pub(super) fn of_job(&self) -> HashMap<String, String> {
        let mut labels = HashMap::from([
            (JOB.to_owned(), self.job.clone()),
            (RUN.to_owned(), self.run.to_string()),
            (OWNER_PID.to_owned(), std::process::id().to_string()),
        ]);
        labels.extend(self.owner.as_ref().map(|owner| (OWNER.to_owned(), owner.to_string())));
        labels
    }

    /// For what belongs to one trial.
    pub(super) fn of_trial(&self, trial: &TrialLabel) -> HashMap<String, String> {
        let mut labels = self.of_job();
        labels.insert(TRIAL.to_owned(), trial.0.clone());
        labels
    }
}

/// For an image that outlives its job. Without the job's labels: it is nobody's.
pub(super) fn of_kept_image(task: &str) -> HashMap<String, String> {
    HashMap::from([(KEPT_IMAGE.to_owned(), "kept".to_owned()), (TASK.to_owned(), task.to_owned())])
}

/// Finds everything of the run with this id.
pub(super) fn run_filter(run: &str) -> String {
    format!("{RUN}={run}")
}

/// The run that something belongs to, if the process that started it was one of this host and is no more.
pub(super) fn dead_run(labels: &HashMap<String, String>) -> Option<&str> {
    let here = Owner::current()?;
    let owner = Owner::parse(labels.get(OWNER)?)?;
    let dead = owner.host == here.host && Owner::of(owner.pid).as_ref() != Some(&owner);
    labels.get(RUN).filter(|_| dead).map(String::as_str)
}

/// A name that tells people what it is for, and that nothing else has.
pub(super) fn unique_name(name: &str, id: Uuid) -> String {
    // The end of a version 7 id is random.
    let id = id.simple().to_string();
    let tail = id.get(id.len().saturating_sub(8)..).unwrap_or_default();
    format!("rolltap-{}-{tail}", slug(name))
}

/// Letters, digits and single dashes, at most 32: fit for names at the engine.
pub(super) fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let slug = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    let slug: String = slug.chars().take(32).collect();
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "task".to_owned() } else { slug.to_owned() }
}

/// A process, told apart from any other that had or will have its id.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    /// This boot of this machine, and the namespace that the id counts in.
    host: String,
    pid: u32,
    /// Clock ticks after boot.
    started: u64,
}

impl Owner {
    fn current() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// None if there is no such process, or on systems without `/proc`.
    fn of(pid: u32) -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Field 22; the second one, a name in brackets, may hold anything.
        let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        Some(Self { host: format!("{}/{}", boot.trim(), namespace.display()), pid, started })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(3, ' ');
        let started = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok()?;
        Some(Self { host: parts.next()?.to_owned(), pid, started })
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {} {}", self.host, self.pid, self.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels_of(owner: &Owner) -> HashMap<String, String> {
        HashMap::from([(RUN.to_owned(), "a run".to_owned()), (OWNER.to_owned(), owner.to_string())])
    }

    #[test]
    fn only_runs_of_processes_that_are_gone_are_dead() {
        let living = Labels::new(&JobLabel::new("job"));
        assert_eq!(dead_run(&living.of_job()), None);
        let me = Owner::current().unwrap();
        let same_id_later = Owner { started: me.started - 1, ..me.clone() };
        assert_eq!(dead_run(&labels_of(&same_id_later)), Some("a run"));
        let elsewhere = Owner { host: "another machine".to_owned(), ..same_id_later };
        assert_eq!(dead_run(&labels_of(&elsewhere)), None);
        assert_eq!(dead_run(&HashMap::new()), None);
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

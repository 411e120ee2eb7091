//! The plan of a job for `rolltap run --dry-run`, made without Docker and without the model.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::check::check;
use super::ready::missing_variables;
use super::tasks::JobTask;
use super::unusable::set_apart;
use super::{JobError, JobSettings, SkippedTasks, UnusableTasks};
use crate::common::words::counted;
use crate::environment::{EnvironmentKind, has_services};
use crate::task::{MissingVariable, MissingVariables, Task};

/// The most entries of a list that are shown.
const LISTED: usize = 20;

/// The plan of a job.
#[derive(Debug)]
pub struct Outline {
    job: String,
    environment: EnvironmentKind,
    tasks: Vec<String>,
    agents: Vec<String>,
    samples: u32,
    concurrency: usize,
    auto_concurrency: bool,
    images: Vec<String>,
    unusable: Option<UnusableTasks>,
    skips: bool,
    missing: Vec<MissingVariable>,
}

impl Outline {
    /// Makes the plan of a job, and moves its unusable tasks out of `settings`.
    ///
    /// # Errors
    /// Fails for settings that make no job.
    pub fn of(settings: &mut JobSettings) -> Result<Self, JobError> {
        let unusable = set_apart(settings);
        check(settings)?;
        let name = settings.job_name.clone().unwrap_or_else(|| "NAME".to_owned());
        Ok(Self {
            job: settings.jobs_dir.join(name).display().to_string(),
            environment: settings.environment,
            tasks: settings.tasks.iter().map(|task| task.task.name.clone()).collect(),
            agents: settings.agents.iter().map(|agent| agent.label()).collect(),
            samples: settings.samples.get(),
            concurrency: settings.concurrency.get(),
            auto_concurrency: settings.auto_concurrency,
            images: images(settings),
            unusable,
            skips: settings.skip_invalid,
            missing: missing_variables(settings),
        })
    }

    /// Returns the reason why the job would not start, if one is known.
    pub fn problem(&self) -> Option<JobError> {
        if let Some(unusable) = self.unusable.as_ref().filter(|unusable| unusable.stop_the_job(self.skips)) {
            return Some(unusable.clone().into());
        }
        if self.tasks.is_empty() {
            return Some(JobError::NoTasks);
        }
        MissingVariables::check(self.missing.clone()).err().map(Into::into)
    }
}

/// Returns a line for each image of the job. Most of them may exist from an earlier job.
fn images(settings: &JobSettings) -> Vec<String> {
    if settings.environment != EnvironmentKind::Docker {
        return Vec::new();
    }
    let mut images: BTreeMap<(&str, PathBuf), usize> = BTreeMap::new();
    let of_task = |JobTask { task, .. }: &JobTask| {
        let of_steps = task.steps.iter().map(|step| &step.task).chain([task]);
        let separate = of_steps.filter_map(|task| task.separate_verifier.as_ref());
        let all = separate.map(|verifier| &verifier.environment).chain([task]);
        all.map(|task| image(task, settings.force_build)).collect::<Vec<_>>()
    };
    for image in settings.tasks.iter().flat_map(of_task) {
        *images.entry(image).or_default() += 1;
    }
    let line = |((what, place), count): (&(&str, PathBuf), &usize)| match count {
        1 => format!("{what} {}", place.display()),
        count => format!("{what} {} ({count} environments)", place.display()),
    };
    images.iter().map(line).collect()
}

fn image(task: &Task, force_build: bool) -> (&'static str, PathBuf) {
    let dir = task.environment_dir();
    match &task.config.environment.docker_image {
        _ if has_services(task) => ("build and pull the services of", dir.join("docker-compose.yaml")),
        Some(name) if !(force_build && task.dockerfile().is_file()) => ("use", PathBuf::from(name)),
        _ => ("build", dir),
    }
}

impl fmt::Display for Outline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tasks, agents) = (self.tasks.len(), self.agents.len());
        let trials = tasks as u64 * agents as u64 * u64::from(self.samples);
        writeln!(f, "job:         {}", self.job)?;
        writeln!(f, "environment: {}", self.environment)?;
        writeln!(f, "agents:      {}", self.agents.join(", "))?;
        writeln!(
            f,
            "trials:      {trials} ({}, {}, {}), at most {} at once{}",
            counted(tasks as u64, "task"),
            counted(agents as u64, "agent"),
            counted(u64::from(self.samples), "sample"),
            self.concurrency,
            if self.auto_concurrency { ", and as many as fit into the KV caches" } else { "" }
        )?;
        list(f, "tasks:", &self.tasks)?;
        list(f, "images, built or pulled if they are missing:", &self.images)?;
        if let Some(unusable) = self.unusable.as_ref().filter(|_| self.skips) {
            writeln!(f, "{}", SkippedTasks(unusable))?;
        }
        write!(f, "nothing was started")
    }
}

fn list(f: &mut fmt::Formatter<'_>, title: &str, entries: &[String]) -> fmt::Result {
    if entries.is_empty() {
        return Ok(());
    }
    writeln!(f, "{title}")?;
    for entry in entries.iter().take(LISTED) {
        writeln!(f, "  {entry}")?;
    }
    match entries.len().saturating_sub(LISTED) {
        0 => Ok(()),
        more => writeln!(f, "  and {more} more"),
    }
}

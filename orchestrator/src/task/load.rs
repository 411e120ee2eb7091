//! Loads a task directory as a [`Task`].

use std::io::ErrorKind;
use std::path::Path;

use super::ignored::warn_of_ignored_keys;
use super::inputs::{Input, InputDirs};
use super::instruction::without_canary;
use super::{
    CONFIG, NetworkPlan, SeparateVerifier, Step, Task, TaskConfig, TaskError, env_template, support,
};

/// The program that runs the trials of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runner {
    /// rolltap, which rejects a task with features that it cannot honour.
    #[default]
    Rolltap,
    /// Harbor, which honours its whole format and reports its own errors.
    Harbor,
}

const SCRIPT: &str = "test.sh";

impl Task {
    /// Loads the task in `dir`.
    ///
    /// # Errors
    /// The first error in the task. All unsupported features are one error.
    pub fn load(dir: &Path) -> Result<Self, TaskError> {
        let task = Self::load_for(dir, Runner::Rolltap)?;
        warn_of_ignored_keys([&task]);
        Ok(task)
    }

    /// Loads the task in `dir` for the given runner of trials. The caller warns of ignored keys, once for all tasks.
    pub(crate) fn load_for(dir: &Path, runner: Runner) -> Result<Self, TaskError> {
        let dir = dir.canonicalize().map_err(|_| TaskError::NotADirectory(dir.to_owned()))?;
        let path = dir.join(CONFIG);
        let mut config = TaskConfig::parse(&read(&path, "the task's configuration")?, &path)?;
        let what = support::unsupported(&config);
        if runner == Runner::Rolltap && !what.is_empty() {
            return Err(TaskError::Unsupported { dir, what });
        }
        let network =
            NetworkPlan::of(&config).map_err(|message| TaskError::Toml { path: path.clone(), message })?;
        env_template::resolve_all(&mut config, &path, |name| std::env::var(name).ok())?;
        let directory_name = || dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = config.task.as_ref().map_or_else(directory_name, |task| task.name.clone());
        let inputs = InputDirs::of(&dir);
        let mut task = Self {
            name,
            instruction: String::new(),
            trajectory: None,
            separate_verifier: None,
            steps: Vec::new(),
            environment: dir.join("environment"),
            solution: inputs.input("solution".as_ref())?,
            tests: vec![inputs.input("tests".as_ref())?],
            config,
            network,
            dir,
        };
        if task.config.steps.is_empty() {
            task.read_instruction(&task.dir.clone())?;
            task.separate_verifier = SeparateVerifier::of(&task, None).map(Box::new);
            task.must_have_tests()?;
        } else {
            let steps = task.config.steps.clone();
            // Each step has its own instruction, tests and verifier.
            task.steps = steps.iter().map(|step| Step::of(&task, step, &inputs)).collect::<Result<_, _>>()?;
        }
        let services = task.environment.join("docker-compose.yaml");
        // Harbor reports a missing definition of an environment itself.
        let is_ours = runner == Runner::Rolltap;
        if is_ours && task.config.environment.docker_image.is_none() && !services.is_file() {
            let expected = "a Dockerfile, a docker-compose.yaml (not .yml), or else environment.docker_image in task.toml";
            must_be_file(&task.dockerfile(), expected)?;
        }
        for stray in support::stray_compose_files(&task) {
            let (dir, stray) = (task.dir.display(), stray.display());
            tracing::warn!("{dir}: {stray} starts no services: Harbor reads docker-compose.yaml alone");
        }
        Ok(task)
    }

    /// Reads the instruction in `dir`, and the path of the trajectory that an agent continues from, if there is one.
    pub(super) fn read_instruction(&mut self, dir: &Path) -> Result<(), TaskError> {
        let text = read(&dir.join("instruction.md"), "the instruction for the agent")?;
        self.instruction = without_canary(&text).to_owned();
        let trajectory = dir.join("trajectory.json");
        self.trajectory = trajectory.is_file().then_some(trajectory);
        self.trajectory.as_deref().map_or(Ok(()), must_be_trajectory)
    }

    /// Checks that there is a test script. A verifier's image that contains the tests needs none in the task.
    pub(super) fn must_have_tests(&self) -> Result<(), TaskError> {
        if self.separate_verifier.as_ref().is_some_and(|verifier| verifier.has_tests) {
            return Ok(());
        }
        if self.tests.iter().any(|tests| tests.path().join(SCRIPT).is_file()) {
            return Ok(());
        }
        // The original directory distinguishes an excluded script from a missing one.
        let missing = |tests: &Input| tests.place().join(SCRIPT);
        let scripts: Vec<_> = self.tests.iter().map(missing).collect();
        if let Some(excluded) = scripts.iter().find(|script| script.is_file()) {
            return Err(TaskError::Excluded(excluded.clone()));
        }
        let path = scripts.into_iter().next_back().unwrap_or_default();
        Err(TaskError::Missing { path, expected: "the script that writes the reward" })
    }
}

/// Checks only the fields of ATIF that distinguish a trajectory from another file. The agent interprets the rest.
fn must_be_trajectory(path: &Path) -> Result<(), TaskError> {
    let text = read(path, "a trajectory")?;
    let wrong = |problem: String| TaskError::Trajectory { path: path.to_owned(), problem };
    let trajectory: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let version = trajectory.get("schema_version").and_then(serde_json::Value::as_str);
    let steps = trajectory.get("steps").and_then(serde_json::Value::as_array);
    match (version, steps) {
        (Some(version), _) if !version.starts_with("ATIF-v1.") => {
            Err(wrong(format!("schema_version is {version:?}, not one of ATIF-v1")))
        }
        (Some(_), Some(steps)) if !steps.is_empty() => Ok(()),
        (None, _) => Err(wrong("there is no schema_version".to_owned())),
        (_, _) => Err(wrong("there are no steps".to_owned())),
    }
}

pub(super) fn read(path: &Path, expected: &'static str) -> Result<String, TaskError> {
    std::fs::read_to_string(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => TaskError::Missing { path: path.to_owned(), expected },
        _ => TaskError::Read { path: path.to_owned(), source },
    })
}

fn must_be_file(path: &Path, expected: &'static str) -> Result<(), TaskError> {
    if path.is_file() { Ok(()) } else { Err(TaskError::Missing { path: path.to_owned(), expected }) }
}

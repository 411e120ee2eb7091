//! Loads a task directory as a [`Task`].

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::inputs::{Input, InputDirs};
use super::instruction::without_canary;
use super::{CONFIG, NetworkPlan, SeparateVerifier, Step, Task, TaskConfig, TaskError, TaskWarning, support};

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

/// A task directory after all checks.
#[derive(Debug)]
pub struct Examined {
    /// The task, or everything that is wrong with it. The list is not empty.
    pub task: Result<Task, Vec<TaskError>>,
    /// Content that has no effect.
    pub warnings: Vec<TaskWarning>,
}

impl Task {
    /// Loads the task in `dir`, and logs its warnings.
    ///
    /// # Errors
    /// The first error in the task. All unsupported features are one error.
    pub fn load(dir: &Path) -> Result<Self, TaskError> {
        let Examined { task, warnings } = Self::examine(dir, Runner::Rolltap);
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let nothing = || TaskError::NotADirectory(dir.to_owned());
        task.map_err(|errors| errors.into_iter().next().unwrap_or_else(nothing))
    }

    /// Loads the task in `dir` for the given runner of trials, and finds everything that is wrong with it.
    pub fn examine(dir: &Path, runner: Runner) -> Examined {
        let mut warnings = Vec::new();
        let task = Self::examined(dir, runner, &mut warnings);
        Examined { task, warnings }
    }

    fn examined(dir: &Path, runner: Runner, warnings: &mut Vec<TaskWarning>) -> Result<Self, Vec<TaskError>> {
        let dir = dir.canonicalize().map_err(|_| vec![TaskError::NotADirectory(dir.to_owned())])?;
        let path = dir.join(CONFIG);
        let text = read(&path, "the task's configuration").map_err(|error| vec![error])?;
        let parsed = TaskConfig::parse(&text, &path);
        *warnings = parsed.warnings;
        let task = Self::assemble(parsed.config?, dir, runner)?;
        let strays = support::stray_compose_files(&task).into_iter().map(|file| task.dir.join(file));
        warnings.extend(strays.map(TaskWarning::StrayComposeFile));
        Ok(task)
    }

    /// Makes the task of a valid configuration and the files in `dir`.
    fn assemble(config: TaskConfig, dir: PathBuf, runner: Runner) -> Result<Self, Vec<TaskError>> {
        let mut errors = Vec::new();
        let what = support::unsupported(&config);
        if runner == Runner::Rolltap && !what.is_empty() {
            errors.push(TaskError::Unsupported { dir: dir.clone(), what });
        }
        let network = NetworkPlan::of(&config).unwrap_or_else(|problem| {
            errors.push(TaskError::Network { path: dir.join(CONFIG), problem });
            NetworkPlan::default()
        });
        let directory_name = || dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = config.task.as_ref().map_or_else(directory_name, |task| task.name.clone());
        let inputs = InputDirs::of(&dir);
        let mut input = |name: &str| inputs.input(name.as_ref()).map_err(|error| errors.push(error)).ok();
        let (solution, tests) = (input("solution"), input("tests"));
        let (Some(solution), Some(tests)) = (solution, tests) else { return Err(errors) };
        let mut task = Self {
            name,
            instruction: String::new(),
            trajectory: None,
            separate_verifier: None,
            steps: Vec::new(),
            environment: dir.join("environment"),
            solution,
            tests: vec![tests],
            config,
            network,
            dir,
        };
        if task.config.steps.is_empty() {
            errors.extend(task.read_instruction(&task.dir.clone()).err());
            task.separate_verifier = SeparateVerifier::of(&task, None).map(Box::new);
            errors.extend(task.must_have_tests().err());
        } else {
            let steps = task.config.steps.clone();
            // Each step has its own instruction, tests and verifier.
            task.steps =
                steps.iter().filter_map(|step| Step::of(&task, step, &inputs, &mut errors)).collect();
        }
        errors.extend(task.must_have_environment(runner).err());
        if errors.is_empty() { Ok(task) } else { Err(errors) }
    }

    fn must_have_environment(&self, runner: Runner) -> Result<(), TaskError> {
        let services = self.environment.join("docker-compose.yaml");
        // Harbor reports a missing definition of an environment itself.
        let is_ours = runner == Runner::Rolltap;
        if is_ours && self.config.environment.docker_image.is_none() && !services.is_file() {
            let expected = "a Dockerfile, a docker-compose.yaml (not .yml), or else environment.docker_image in task.toml";
            must_be_file(&self.dockerfile(), expected)?;
        }
        Ok(())
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

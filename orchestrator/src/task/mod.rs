//! Harbor task directories: `task.toml`, `instruction.md`, `environment/`, `tests/test.sh`, `solution/solve.sh`.
//!
//! Everything that can be wrong with a task is told here, before a trial starts: missing files, wrong types, impossible
//! values, variables that are not set, and parts of Harbor's format that rolltap does not support yet.

mod config;
mod env_template;
mod error;
mod parse;
mod support;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub use config::{
    AgentConfig, Artifact, Author, EnvironmentConfig, NetworkMode, PackageConfig, RewardStrategy,
    SolutionConfig, TaskConfig, VerifierConfig, VerifierEnvironmentMode,
};
pub use error::TaskError;

const CONFIG: &str = "task.toml";

/// One task, loaded and found to be something that rolltap can run.
#[derive(Clone, Debug)]
pub struct Task {
    /// `[task].name`, or else the directory's name.
    pub name: String,
    /// The task directory, absolute.
    pub dir: PathBuf,
    /// The text of `instruction.md`.
    pub instruction: String,
    /// `task.toml`, its `env` tables resolved.
    pub config: TaskConfig,
}

impl Task {
    /// Loads the task in `dir`.
    ///
    /// # Errors
    /// The first thing that is wrong with it; everything unsupported at once.
    pub fn load(dir: &Path) -> Result<Self, TaskError> {
        let dir = dir.canonicalize().map_err(|_| TaskError::NotADirectory(dir.to_owned()))?;
        let path = dir.join(CONFIG);
        let mut config = TaskConfig::parse(&read(&path, "the task's configuration")?, &path)?;
        let what = support::unsupported(&config, &dir);
        if !what.is_empty() {
            return Err(TaskError::Unsupported { dir, what });
        }
        let host = |name: &str| std::env::var(name).ok();
        env_template::resolve(&mut config.environment.env, "environment.env", &path, host)?;
        env_template::resolve(&mut config.verifier.env, "verifier.env", &path, host)?;
        env_template::resolve(&mut config.solution.env, "solution.env", &path, host)?;
        let instruction = read(&dir.join("instruction.md"), "the instruction for the agent")?;
        let directory_name = || dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = config.task.as_ref().map_or_else(directory_name, |task| task.name.clone());
        let task = Self { name, dir, instruction, config };
        must_be_file(&task.test_script(), "the script that writes the reward")?;
        if task.config.environment.docker_image.is_none() {
            must_be_file(&task.dockerfile(), "a Dockerfile, or else environment.docker_image in task.toml")?;
        }
        Ok(task)
    }

    /// `environment/`: the build context. Need not exist where the task names an image.
    pub fn environment_dir(&self) -> PathBuf {
        self.dir.join("environment")
    }

    /// `environment/Dockerfile`
    pub fn dockerfile(&self) -> PathBuf {
        self.environment_dir().join("Dockerfile")
    }

    /// `tests/`
    pub fn tests_dir(&self) -> PathBuf {
        self.dir.join("tests")
    }

    /// `tests/test.sh`
    pub fn test_script(&self) -> PathBuf {
        self.tests_dir().join("test.sh")
    }

    /// `solution/`. Need not exist.
    pub fn solution_dir(&self) -> PathBuf {
        self.dir.join("solution")
    }

    /// `solution/solve.sh`. Need not exist.
    pub fn solution_script(&self) -> PathBuf {
        self.solution_dir().join("solve.sh")
    }
}

/// The task at `path`, or all tasks in the directory `path`, sorted by name.
///
/// Sub-directories without `task.toml` are passed over; one with a `task.toml` that is wrong is an error.
///
/// # Errors
/// Nothing found, or the first task that cannot be loaded.
pub fn discover(path: &Path) -> Result<Vec<Task>, TaskError> {
    if !path.is_dir() {
        return Err(TaskError::NotADirectory(path.to_owned()));
    }
    if path.join(CONFIG).exists() {
        return Ok(vec![Task::load(path)?]);
    }
    let unreadable = |source| TaskError::Read { path: path.to_owned(), source };
    let mut tasks = Vec::new();
    for entry in path.read_dir().map_err(unreadable)? {
        let dir = entry.map_err(unreadable)?.path();
        if dir.join(CONFIG).exists() {
            tasks.push(Task::load(&dir)?);
        }
    }
    tasks.sort_by(|one, other| one.name.cmp(&other.name));
    if tasks.is_empty() { Err(TaskError::NothingFound(path.to_owned())) } else { Ok(tasks) }
}

fn read(path: &Path, expected: &'static str) -> Result<String, TaskError> {
    std::fs::read_to_string(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => TaskError::Missing { path: path.to_owned(), expected },
        _ => TaskError::Read { path: path.to_owned(), source },
    })
}

fn must_be_file(path: &Path, expected: &'static str) -> Result<(), TaskError> {
    if path.is_file() { Ok(()) } else { Err(TaskError::Missing { path: path.to_owned(), expected }) }
}

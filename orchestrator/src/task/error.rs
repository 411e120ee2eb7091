//! The errors of task directories, for the person who wrote the task.

use std::path::PathBuf;

/// Why a task cannot be loaded. Every message names the file, and the key if there is one.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The given path is neither a task nor a directory that contains tasks.
    #[error(
        "no task found at {}: looked for task.toml in the directory itself and in each of its sub-directories",
        .0.display()
    )]
    NothingFound(PathBuf),
    /// The given path does not exist, or is not a directory.
    #[error("{} is not a directory: expected a Harbor task directory, or a directory of them", .0.display())]
    NotADirectory(PathBuf),
    /// A required file is missing.
    #[error("{}: missing, expected {expected}", .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// A description of the expected content.
        expected: &'static str,
    },
    /// A file exists and cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// `task.toml` is not TOML, or a key has the wrong type.
    #[error("{}: {message}", .path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// Line, column and expectation, in the words of the TOML parser.
        message: String,
    },
    /// A key has the right type and an impossible value.
    #[error("{}: {key} = {value}: expected {expected}", .path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key, with its section.
        key: String,
        /// The given value.
        value: String,
        /// A description of valid values.
        expected: &'static str,
    },
    /// A required file exists, and a `.harborignore` excludes it.
    #[error("{}: left out by .harborignore, but needed", .0.display())]
    Excluded(PathBuf),
    /// The file that an agent would continue from is not a trajectory.
    #[error("{}: no trajectory of ATIF: {problem}", .path.display())]
    Trajectory {
        /// The file.
        path: PathBuf,
        /// The problem with the file.
        problem: String,
    },
    /// An environment variable of the host that the task requires is not set.
    #[error(
        "{}: {key}: the environment variable {variable} is not set; set it, or write ${{{variable}:-default}}",
        .path.display()
    )]
    Variable {
        /// The file.
        path: PathBuf,
        /// The key that refers to the variable, with its section.
        key: String,
        /// The variable.
        variable: String,
    },
    /// The task uses parts of Harbor's format that rolltap would have to ignore.
    #[error("{}: rolltap does not support yet: {}", .dir.display(), .what.join("; "))]
    Unsupported {
        /// The task directory.
        dir: PathBuf,
        /// One entry per field or file, with its value.
        what: Vec<String>,
    },
}

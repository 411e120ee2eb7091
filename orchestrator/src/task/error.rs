//! What can be wrong with a task directory, in words for the person who wrote it.

use std::path::PathBuf;

/// Why a task cannot be loaded. Every message names the file, and the key where there is one.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The path given is neither a task nor a directory with tasks in it.
    #[error(
        "no task found at {}: looked for task.toml in the directory itself and in each of its sub-directories",
        .0.display()
    )]
    NothingFound(PathBuf),
    /// The path given is not there, or not a directory.
    #[error("{} is not a directory: expected a Harbor task directory, or a directory of them", .0.display())]
    NotADirectory(PathBuf),
    /// A file that a task must have is not there.
    #[error("{}: missing, expected {expected}", .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What should be in it.
        expected: &'static str,
    },
    /// A file is there and cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// `task.toml` is not TOML, or a key has the wrong type.
    #[error("{}: {message}", .path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// Line, column and expectation, as the TOML parser words them.
        message: String,
    },
    /// A key has the right type and an impossible value.
    #[error("{}: {key} = {value}: expected {expected}", .path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key, with its section.
        key: String,
        /// What is there.
        value: String,
        /// What could be there.
        expected: &'static str,
    },
    /// A file that a task must have is there, and a `.harborignore` leaves it out.
    #[error("{}: left out by .harborignore, but needed", .0.display())]
    Excluded(PathBuf),
    /// What an agent is to go on from is no trajectory.
    #[error("{}: no trajectory of ATIF: {problem}", .path.display())]
    Trajectory {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// An environment variable of the host that the task asks for is not set.
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
    /// Parts of Harbor's format that rolltap would have to ignore.
    #[error("{}: rolltap does not support yet: {}", .dir.display(), .what.join("; "))]
    Unsupported {
        /// The task.
        dir: PathBuf,
        /// One entry per field or file, with its value.
        what: Vec<String>,
    },
}

//! The errors of task directories, for the person who wrote the task.

use std::path::{Path, PathBuf};

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
    #[error("{}: {}", .path.display(), .excerpt.as_deref().unwrap_or(.problem))]
    Toml {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: Option<usize>,
        /// The problem, in the words of the TOML parser.
        problem: String,
        /// The problem with its position and the faulty line.
        excerpt: Option<String>,
    },
    /// The keys of a network policy contradict each other.
    #[error("{}: {problem}", .path.display())]
    Network {
        /// The file.
        path: PathBuf,
        /// The problem. Its first word is the key, with its section.
        problem: String,
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

impl TaskError {
    /// Returns the file or directory with the error.
    pub fn path(&self) -> &Path {
        match self {
            Self::NothingFound(path) | Self::NotADirectory(path) | Self::Excluded(path) => path,
            Self::Missing { path, .. }
            | Self::Read { path, .. }
            | Self::Toml { path, .. }
            | Self::Network { path, .. }
            | Self::Value { path, .. }
            | Self::Trajectory { path, .. }
            | Self::Variable { path, .. }
            | Self::Unsupported { dir: path, .. } => path,
        }
    }

    /// Returns the key with the error, with its section, if the error is that of a key.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Value { key, .. } | Self::Variable { key, .. } => Some(key),
            Self::Network { problem, .. } => problem.split(' ').next(),
            _ => None,
        }
    }

    /// Returns the error without the path, in one line.
    pub fn problem(&self) -> String {
        match self {
            Self::Toml { problem, .. } => return problem.clone(),
            Self::Read { source, .. } => return format!("cannot be read: {source}"),
            _ => {}
        }
        let text = self.to_string();
        text.strip_prefix(&format!("{}: ", self.path().display())).unwrap_or(&text).to_owned()
    }
}

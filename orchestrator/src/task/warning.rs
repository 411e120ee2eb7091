//! Content of a task that has no effect.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Content of a task that neither Harbor nor rolltap reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskWarning {
    /// `task.toml` has keys that Harbor does not know.
    UnknownKeys {
        /// The file.
        path: PathBuf,
        /// The keys, with their sections.
        keys: Vec<String>,
    },
    /// `task.toml` has `version`, the old name of `schema_version`, beside it.
    OldVersion {
        /// The file.
        path: PathBuf,
        /// The value of `version`.
        old: String,
        /// The value of `schema_version`.
        new: String,
    },
    /// A compose file has a name under which it starts no services.
    StrayComposeFile(PathBuf),
}

impl TaskWarning {
    /// Returns the file of the content.
    pub fn path(&self) -> &Path {
        match self {
            Self::UnknownKeys { path, .. } | Self::OldVersion { path, .. } | Self::StrayComposeFile(path) => {
                path
            }
        }
    }

    /// Returns the key of the content, if it is one key.
    pub(super) fn key(&self) -> Option<&'static str> {
        match self {
            Self::OldVersion { .. } => Some("version"),
            Self::UnknownKeys { .. } | Self::StrayComposeFile(_) => None,
        }
    }
}

impl fmt::Display for TaskWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKeys { path, keys } => {
                let count = if keys.len() == 1 { "a key" } else { "keys" };
                write!(
                    f,
                    "{}: ignoring {count} that Harbor does not know: {}",
                    path.display(),
                    keys.join(", ")
                )
            }
            Self::OldVersion { path, old, new } => {
                write!(
                    f,
                    "{}: version = {old} is ignored, since there is schema_version = {new:?}",
                    path.display()
                )
            }
            Self::StrayComposeFile(path) => {
                write!(f, "{}: starts no services: Harbor reads docker-compose.yaml alone", path.display())
            }
        }
    }
}

/// Sums up the warnings of many tasks. Each unknown key is named once, with the number of tasks that have it.
pub fn summed_up(warnings: &[TaskWarning]) -> Vec<String> {
    let mut keys: BTreeMap<&str, (usize, &Path)> = BTreeMap::new();
    let mut lines = Vec::new();
    for warning in warnings {
        match warning {
            TaskWarning::UnknownKeys { path, keys: unknown } => {
                for key in unknown {
                    keys.entry(key).or_insert((0, path)).0 += 1;
                }
            }
            other => lines.push(other.to_string()),
        }
    }
    let places = keys.iter().map(|(key, (count, path))| match count {
        1 => format!("{key} ({})", path.display()),
        _ => format!("{key} ({count} tasks, such as {})", path.display()),
    });
    let places: Vec<_> = places.collect();
    if !places.is_empty() {
        lines.push(format!("ignoring keys that Harbor does not know: {}", places.join(", ")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unknown_keys_of_many_tasks_are_one_line() {
        let unknown = |task: &str, keys: &[&str]| TaskWarning::UnknownKeys {
            path: PathBuf::from(task).join("task.toml"),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        };
        let warnings = [
            unknown("a", &["task.format"]),
            TaskWarning::StrayComposeFile(PathBuf::from("a/environment/docker-compose.yml")),
            unknown("b", &["task.format", "x"]),
        ];
        assert_eq!(
            summed_up(&warnings),
            [
                "a/environment/docker-compose.yml: starts no services: Harbor reads docker-compose.yaml alone",
                "ignoring keys that Harbor does not know: task.format (2 tasks, such as a/task.toml), x (b/task.toml)"
            ]
        );
        assert!(summed_up(&[]).is_empty());
    }
}

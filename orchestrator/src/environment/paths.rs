//! Harbor's directories in an environment, and the directories of this host into which they are copied.

#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;

/// Harbor's directories, as paths in the environment. They are absolute, without a final slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The working directory of commands.
    pub workdir: String,
    /// The directory into which `tests/` is copied, just before verification.
    pub tests: String,
    /// The directory into which the oracle copies `solution/`.
    pub solution: String,
    /// The parent of the next three directories.
    pub logs: String,
    /// The agent's logs, for people.
    pub agent_logs: String,
    /// The verifier's logs, with the reward.
    pub verifier_logs: String,
    /// Files to collect.
    pub artifacts: String,
}

impl Paths {
    /// Returns Harbor's directories in a container.
    pub(crate) fn in_container(workdir: &str) -> Self {
        Self::below("", workdir)
    }

    /// Returns Harbor's directories below `root`, which is empty, or absolute without a final slash.
    pub(super) fn below(root: &str, workdir: &str) -> Self {
        Self {
            workdir: if root.is_empty() {
                workdir.to_owned()
            } else {
                format!("{root}{}", workdir.trim_end_matches('/'))
            },
            tests: format!("{root}/tests"),
            solution: format!("{root}/solution"),
            logs: format!("{root}/logs"),
            agent_logs: format!("{root}/logs/agent"),
            verifier_logs: format!("{root}/logs/verifier"),
            artifacts: format!("{root}/logs/artifacts"),
        }
    }
}

/// The directories of this host into which an environment's log directories are copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDirs {
    /// The copy of [`Paths::agent_logs`].
    pub agent: PathBuf,
    /// The copy of [`Paths::verifier_logs`].
    pub verifier: PathBuf,
    /// The copy of [`Paths::artifacts`].
    pub artifacts: PathBuf,
    /// The patterns of names that are left out of [`Paths::artifacts`], by the rules of `tar --exclude`.
    pub exclude: Vec<String>,
}

#[cfg(test)]
impl LogDirs {
    /// Returns three sub-directories of `dir`, each under its own name.
    pub(crate) fn below(dir: &Path) -> Self {
        let [agent, verifier, artifacts] = ["agent", "verifier", "artifacts"].map(|name| dir.join(name));
        Self { agent, verifier, artifacts, exclude: Vec::new() }
    }
}

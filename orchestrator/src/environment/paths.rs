//! Harbor's places: where they are inside, and where what lies in them goes on this host.

#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;

/// Harbor's places, as seen from inside. Absolute, without a slash at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Where commands run.
    pub workdir: String,
    /// Where `tests/` is put, just before verification.
    pub tests: String,
    /// Where `solution/` is put, by the oracle alone.
    pub solution: String,
    /// The directory of the three below.
    pub logs: String,
    /// What the agent leaves for people.
    pub agent_logs: String,
    /// Where the tests leave the reward.
    pub verifier_logs: String,
    /// Files to keep.
    pub artifacts: String,
}

impl Paths {
    /// Harbor's own, each below `root` (empty, or absolute without a slash at the end).
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

/// Where on this host what lies in an environment's log directories goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDirs {
    /// From [`Paths::agent_logs`].
    pub agent: PathBuf,
    /// From [`Paths::verifier_logs`].
    pub verifier: PathBuf,
    /// From [`Paths::artifacts`].
    pub artifacts: PathBuf,
}

#[cfg(test)]
impl LogDirs {
    /// Each under its own name in one directory.
    pub(crate) fn below(dir: &Path) -> Self {
        Self { agent: dir.join("agent"), verifier: dir.join("verifier"), artifacts: dir.join("artifacts") }
    }
}

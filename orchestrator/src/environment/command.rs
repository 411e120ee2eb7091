//! Commands that run in an environment, and their results.

use std::collections::BTreeMap;
use std::time::Duration;

use super::output::Tail;

/// A command to run in an environment.
#[derive(Clone, Debug, Default)]
pub struct Exec {
    /// The command line. It is run by `bash -c`, as in Harbor, or by `sh -c` if there is no bash. Standard input is
    /// empty.
    pub command: String,
    /// Variables that are added to those of the image and of the task.
    pub env: BTreeMap<String, String>,
    /// The working directory. `None` for [`Paths::workdir`](super::Paths::workdir).
    pub cwd: Option<String>,
    /// User name or id. `None` for the image's user. The local environment has only one user, and warns.
    pub user: Option<String>,
    /// The limit after which the command's processes are killed, also inside a container. `None` for no limit. If a
    /// caller drops the future instead, the processes in a container continue.
    pub timeout: Option<Duration>,
    /// Whether the timeout also kills each process that was orphaned to a container's first process since the command
    /// began, whatever started it. For a command beside which nothing else of importance runs, such as an agent's.
    pub kills_orphans: bool,
}

/// The result of an [`Exec`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// The exit code. `None` if the command was killed or its end is not known.
    pub exit_code: Option<i64>,
    /// At most [`OUTPUT_LIMIT`] bytes.
    pub stdout: Vec<u8>,
    /// At most [`OUTPUT_LIMIT`] bytes.
    pub stderr: Vec<u8>,
    /// Whether [`Exec::timeout`] passed.
    pub timed_out: bool,
    /// Whether output beyond the limit was dropped.
    pub truncated: bool,
}

impl ExecOutput {
    /// Returns the last lines of standard error that fit a message. The whole output may have megabytes.
    pub(crate) fn last_words(&self) -> String {
        let mut tail = Tail::default();
        tail.push(&String::from_utf8_lossy(&self.stderr));
        tail.text().trim().to_owned()
    }
}

/// The most bytes of each output stream of a command that are returned: enough for any log that people read.
pub const OUTPUT_LIMIT: usize = 8 * 1024 * 1024;

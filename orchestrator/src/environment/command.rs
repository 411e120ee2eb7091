//! Commands that run inside, and what came of them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::output::Tail;

/// A command to run inside.
#[derive(Clone, Debug, Default)]
pub struct Exec {
    /// Run by `bash -c`, as Harbor does, or by `sh -c` where there is no bash. Standard input is empty.
    pub command: String,
    /// Added to the environment variables of the image and of the task.
    pub env: BTreeMap<String, String>,
    /// Where to run it; none for [`Paths::workdir`](super::Paths::workdir).
    pub cwd: Option<String>,
    /// User name or id; none for the image's. The local environment has but one user and warns.
    pub user: Option<String>,
    /// After this the command's processes are killed, inside too; none for no limit. A caller that merely drops the
    /// future leaves them running in a container.
    pub timeout: Option<Duration>,
    /// At the timeout, what was left to a container's first process since the command began is killed too, whoever left it
    /// there: for a command besides which nothing runs that matters, as an agent's.
    pub kills_orphans: bool,
}

/// What came of an [`Exec`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// None if it was killed or its end is not known.
    pub exit_code: Option<i64>,
    /// At most [`OUTPUT_LIMIT`] bytes.
    pub stdout: Vec<u8>,
    /// At most [`OUTPUT_LIMIT`] bytes.
    pub stderr: Vec<u8>,
    /// [`Exec::timeout`] ran out.
    pub timed_out: bool,
    /// There was more output than is kept.
    pub truncated: bool,
}

impl ExecOutput {
    /// What the command said last on standard error, in lines that fit a message: it may have said megabytes.
    pub(crate) fn last_words(&self) -> String {
        let mut tail = Tail::default();
        tail.push(&String::from_utf8_lossy(&self.stderr));
        tail.text().trim().to_owned()
    }
}

/// Bytes kept of each output stream of a command: enough for any log that people read.
pub const OUTPUT_LIMIT: usize = 8 * 1024 * 1024;

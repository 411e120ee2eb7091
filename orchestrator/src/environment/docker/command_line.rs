//! Docker's command line, for two features that the engine's API lacks: BuildKit and compose.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use super::engine::Engine;
use crate::environment::output::{Head, Tail};

/// The most bytes of a line of output. A longer line is reported in parts.
const LONGEST_LINE: u64 = 64 * 1024;

/// A call of `docker` at the same engine as the API calls.
pub(super) struct CommandLine {
    command: Command,
}

/// The result of a call.
#[derive(Debug)]
pub(super) struct CommandEnd {
    pub(super) success: bool,
    pub(super) stdout: Vec<u8>,
    /// The last lines of standard error.
    pub(super) said: Tail,
}

/// Why `docker` could not be run.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoCommandLine {
    #[error("there is no `docker` command on PATH")]
    Missing,
    #[error("the `docker` command does not run: {0}")]
    Broken(std::io::Error),
}

impl CommandLine {
    pub(super) fn new(engine: &Engine, arguments: impl IntoIterator<Item = OsString>) -> Self {
        let mut command = Command::new("docker");
        command
            .args(arguments)
            .env("DOCKER_HOST", engine.docker_host())
            .env("DOCKER_BUILDKIT", "1")
            // With another builder, the image would stay in that builder's own store.
            .env("BUILDX_BUILDER", "default")
            // A context takes precedence over `DOCKER_HOST`.
            .env_remove("DOCKER_CONTEXT")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // The plugin joins this group, which is killed as a whole.
            .process_group(0)
            .kill_on_drop(true);
        Self { command }
    }

    pub(super) fn stdin(mut self, file: std::fs::File) -> Self {
        self.command.stdin(file);
        self
    }

    pub(super) fn env(mut self, variables: &BTreeMap<String, String>) -> Self {
        self.command.envs(variables);
        self
    }

    /// Runs the call to its end, and calls `line` for each line of standard error. If the future is dropped, the call
    /// and the plugin that it started are killed.
    pub(super) async fn run(mut self, mut line: impl FnMut(&str)) -> Result<CommandEnd, NoCommandLine> {
        let mut child = self.command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => NoCommandLine::Missing,
            _ => NoCommandLine::Broken(error),
        })?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut group = ProcessGroup(child);
        let mut said = Tail::default();
        // Both streams are read at once, so that a full pipe does not block the call.
        let (stdout, ()) = tokio::join!(
            head(stdout),
            lines(stderr, |text| {
                said.push(text);
                line(text.trim_end());
            })
        );
        let status = group.0.wait().await.map_err(NoCommandLine::Broken)?;
        Ok(CommandEnd { success: status.success(), stdout, said })
    }
}

/// A child process that leads a process group. Until the child is waited for, its id cannot belong to another process.
struct ProcessGroup(Child);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // After the child was waited for, `id` is `None` and nothing is killed.
        let leader = self.0.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(leader) = leader {
            let _ = kill_process_group(leader, Signal::TERM);
        }
    }
}

async fn head(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut head = Head::default();
    let Some(mut stream) = stream else { return head.into_bytes() };
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = stream.read(&mut chunk).await {
        head.push(chunk.get(..length).unwrap_or_default());
    }
    head.into_bytes()
}

async fn lines(stream: Option<impl AsyncRead + Unpin>, mut tell: impl FnMut(&str)) {
    let Some(stream) = stream else { return };
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line).await {
        tell(&String::from_utf8_lossy(&line));
        line.clear();
    }
}

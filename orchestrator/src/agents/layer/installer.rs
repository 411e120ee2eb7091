//! Runs an installer's programs. Their output is collected for errors and shown from time to time.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;

use super::LayerError;
use crate::common::plain::plain;
use crate::environment::Tail;

/// The minimum time between two progress lines.
const PAUSE: Duration = Duration::from_secs(5);

/// The maximum length of a progress line in characters.
const TOLD_LENGTH: usize = 100;

/// An installation.
pub(super) struct Installer<'a> {
    pub(super) agent: &'a str,
    pub(super) version: &'a str,
    /// The directory that becomes the layer.
    pub(super) dir: &'a Path,
}

impl Installer<'_> {
    /// Runs a program to its end. The program is killed if the future is dropped.
    pub(super) async fn run(&self, step: &str, mut command: Command) -> Result<(), LayerError> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let program = command.as_std().get_program().to_os_string();
        let mut child = command.spawn().map_err(LayerError::io("run", Path::new(&program)))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut told = Told { agent: self.agent, tail: Tail::default(), next: Instant::now() + PAUSE };
        let mut errors = Tail::default();
        // The streams are collected separately, so that a warning does not interrupt the progress. Errors come last in
        // the message.
        tokio::join!(read(stdout, |line| told.line(line)), read(stderr, |line| errors.push(&line)));
        let status = child.wait().await.map_err(LayerError::io("run", Path::new(&program)))?;
        if status.success() {
            return Ok(());
        }
        let ended = match status.code() {
            Some(code) => format!("ended with exit code {code}"),
            None => "was killed by a signal".to_owned(),
        };
        let tail = [told.tail.text(), errors.text()].join("\n");
        Err(self.failed(step, ended, tail.trim_matches('\n').to_owned()))
    }

    pub(super) fn failed(&self, step: &str, ended: String, tail: String) -> LayerError {
        LayerError::Failed {
            agent: self.agent.to_owned(),
            version: self.version.to_owned(),
            step: step.to_owned(),
            ended,
            tail,
        }
    }
}

struct Told<'a> {
    agent: &'a str,
    tail: Tail,
    next: Instant,
}

impl Told<'_> {
    fn line(&mut self, line: String) {
        self.tail.push(&line);
        if Instant::now() >= self.next && !line.trim().is_empty() {
            self.next = Instant::now() + PAUSE;
            let short: String = plain(line.trim()).chars().take(TOLD_LENGTH).collect();
            tracing::info!("installing agent {}: {short}", self.agent);
        }
    }
}

async fn read(stream: Option<impl AsyncRead + Unpin>, mut take: impl FnMut(String)) {
    let Some(stream) = stream else { return };
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while let Ok(1..) = reader.read_until(b'\n', &mut line).await {
        take(String::from_utf8_lossy(&line).into_owned());
        line.clear();
    }
}

/// Returns whether a program is on PATH.
pub(super) fn on_path(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

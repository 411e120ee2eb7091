//! Programs of rolltap that serve while a test runs.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rolltap_rollout::row::RolloutRow;
use tempfile::TempDir;

use crate::program::{both_outputs, rolltap};

/// A running server, which ends when this is dropped.
pub(crate) struct Server {
    child: Child,
    /// The addresses that it prints, each without a slash at its end.
    pub(crate) urls: Vec<String>,
}

impl Server {
    /// Starts `rolltap ARGUMENTS`, which prints an address on each of its first lines.
    pub(crate) fn start(arguments: &[&str], addresses: usize) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rolltap"));
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let urls: Vec<String> = lines
            .take(addresses)
            .filter_map(|line| line.split_whitespace().last().map(|url| url.trim_end_matches('/').to_owned()))
            .collect();
        assert_eq!(urls.len(), addresses, "rolltap {arguments:?} ended early");
        Self { child, urls }
    }

    /// Ends the server as a service manager does, and waits for its end.
    pub(crate) fn stop(mut self) {
        let signalled = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(signalled.success());
        assert!(self.child.wait().unwrap().success());
    }

    /// Starts a viewer of this path.
    pub(crate) fn view(path: &Path) -> Self {
        Self::start(&["view", "--port", "0", path.to_str().unwrap()], 1)
    }

    /// Returns the address of a page of a viewer.
    pub(crate) fn page(&self, path: &str) -> String {
        format!("{}{path}", self.urls[0])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The job of `rolltap demo`, in a directory of jobs of its own.
pub(crate) struct Demo(TempDir);

impl Demo {
    pub(crate) fn run() -> Self {
        let dir = TempDir::new().unwrap();
        let ended = rolltap(&["demo", "--quiet", "--job-name", "demo", "-o", dir.path().to_str().unwrap()]);
        assert!(ended.status.success(), "{}", both_outputs(&ended));
        Self(dir)
    }

    /// Returns the directory of jobs.
    pub(crate) fn jobs(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.0.path().join("demo")
    }

    pub(crate) fn rows(&self) -> Vec<RolloutRow> {
        let text = std::fs::read_to_string(self.dir().join("rollouts.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

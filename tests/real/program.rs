//! The `rolltap` program, and the objects that it may leave behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rolltap_rollout::row::RolloutRow;
use tempfile::TempDir;

/// A job of the program in a directory of its own.
pub(crate) struct Job {
    pub(crate) name: String,
    jobs: TempDir,
}

impl Job {
    pub(crate) fn new(name: &str) -> Self {
        // Tests of several runs may share one Docker engine.
        Self { name: format!("{name}-{}", std::process::id()), jobs: TempDir::new().unwrap() }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.jobs.path().join(&self.name)
    }

    /// Returns the command `rolltap run` of this job.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rolltap"));
        command
            .arg("run")
            .args(["--job-name", &self.name, "--jobs-dir"])
            .arg(self.jobs.path())
            .args(arguments);
        command
    }

    pub(crate) fn rows(&self) -> Vec<RolloutRow> {
        let text = std::fs::read_to_string(self.dir().join("rollouts.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the containers, networks and images of this job.
    pub(crate) fn left_in_docker(&self) -> Vec<String> {
        let label = format!("label=dev.rolltap.job={}", self.name);
        let lists: [&[&str]; 3] = [&["ps", "-aq"], &["network", "ls", "-q"], &["images", "-q"]];
        lists.iter().flat_map(|list| listed(&[list, &["--filter", &label][..]].concat())).collect()
    }
}

/// Returns the lines that a command of `docker` prints.
pub(crate) fn listed(docker: &[&str]) -> Vec<String> {
    let output = Command::new("docker").args(docker).output().unwrap();
    text(&output.stdout).lines().map(str::to_owned).collect()
}

/// Runs the program to its end.
pub(crate) fn rolltap(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rolltap")).args(arguments).output().unwrap()
}

pub(crate) fn both_outputs(output: &Output) -> String {
    format!("{}\n{}", text(&output.stdout), text(&output.stderr))
}

/// Runs `rolltap check` on a path.
pub(crate) fn check(path: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rolltap")).arg("check").arg(path).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

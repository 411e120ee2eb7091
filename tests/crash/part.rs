//! A process of the program that writes its log to a file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rolltap_testing::until;

/// A process that is killed when this is dropped.
pub(crate) struct Part {
    child: Child,
    log: PathBuf,
}

impl Part {
    /// Starts `rolltap` in a directory, with its log in `NAME.log`.
    pub(crate) fn start(dir: &Path, name: &str, arguments: &[String]) -> Self {
        Self::start_with(dir, name, arguments, &[])
    }

    /// Starts `rolltap` with further variables.
    pub(crate) fn start_with(
        dir: &Path,
        name: &str,
        arguments: &[String],
        variables: &[(String, String)],
    ) -> Self {
        let log = dir.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rolltap"));
        command.args(arguments).envs(variables.iter().cloned()).current_dir(dir).stdin(Stdio::null());
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Self { child, log }
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the process has written a text a number of times.
    pub(crate) fn until_said(&self, text: &str, times: usize) {
        until(&format!("{text:?} {times} times in {}", self.log.display()), || {
            self.said().matches(text).count() >= times
        });
    }

    pub(crate) fn send(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([format!("-{signal}"), id]).status().unwrap().success());
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Whether the process has not ended.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end of the process.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until(&format!("the end of {}", self.log.display()), || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `rolltap check` on a job directory or a place in object storage, which must have no breach. Returns its output.
pub(crate) fn check(place: &Path, variables: &[(String, String)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rolltap"));
    let output = command.arg("check").arg(place).envs(variables.iter().cloned()).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{}: {said}", place.display());
    said
}

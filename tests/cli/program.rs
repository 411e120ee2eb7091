//! The program under test, started the way a user starts it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Returns the command `rolltap ARGS` in `dir`, without the `ROLLTAP_` and `OTEL_` variables of the tester's own
/// environment.
pub(crate) fn rolltap(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rolltap"));
    command.args(args).current_dir(dir).stdin(Stdio::null());
    let is_own = |name: &str| name.starts_with("ROLLTAP_") || name.starts_with("OTEL_");
    for (name, _) in std::env::vars().filter(|(name, _)| is_own(name)) {
        command.env_remove(name);
    }
    command
}

/// The exit code of a command and its output as text.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

pub(crate) fn run(dir: &Path, args: &[&str]) -> Ended {
    rolltap(dir, args).output().unwrap().into()
}

/// A running server or job, which is killed if a test fails half-way.
pub(crate) struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: Option<ChildStderr>,
}

impl Running {
    pub(crate) fn start(dir: &Path, args: &[&str]) -> Self {
        Self::spawn(&mut rolltap(dir, args))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = child.stderr.take();
        Self { child, stdout, stderr }
    }

    /// Starts the command with standard error in a file, so that a process with a long log need not wait for a reader.
    pub(crate) fn logging_to(command: &mut Command, log: std::fs::File) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout, stderr: None }
    }

    /// Returns the address at the end of the next line of standard output.
    pub(crate) fn next_url(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let url = line.split_whitespace().last().unwrap_or_default().to_owned();
        assert!(
            url.starts_with("http://") || url.starts_with("https://"),
            "no URL in {line:?}; stderr: {}",
            self.stderr_text()
        );
        url
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &kill]).status();
        assert!(status.unwrap().success());
    }

    /// Returns the peak of its memory so far, in MiB.
    pub(crate) fn peak_memory_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }

    /// Returns the exit code and standard error. Fails if the process runs longer than this.
    pub(crate) fn wait(mut self, at_most: Duration) -> (Option<i32>, String) {
        (self.exit_code(at_most), self.stderr_text())
    }

    fn exit_code(&mut self, at_most: Duration) -> Option<i32> {
        let deadline = Instant::now() + at_most;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "still running after {at_most:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the exit code and standard output, which is short. Fails if the process runs longer than this.
    pub(crate) fn wait_for_output(mut self, at_most: Duration) -> (Option<i32>, String) {
        (self.exit_code(at_most), std::io::read_to_string(&mut self.stdout).unwrap())
    }

    fn stderr_text(&mut self) -> String {
        let _ = self.child.kill();
        self.stderr.take().map(|stderr| std::io::read_to_string(stderr).unwrap()).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A script of the simulator whose model ends each task of the terminal agent at once.
pub(crate) const ENDS_AT_ONCE: &str = r#"
[[conversation]]
[[conversation.turn]]
[[conversation.turn.answer]]
content = '{"analysis": "", "plan": "", "commands": [], "task_complete": true}'
"#;

/// Starts the simulator with this script, or with random answers. Returns its URL too.
pub(crate) fn simulator(dir: &Path, script: Option<&str>) -> (Running, String) {
    let mut args = vec!["sim", "--listen", "127.0.0.1:0"];
    if let Some(script) = script {
        std::fs::write(dir.join("script.toml"), script).unwrap();
        args.extend(["--script", "script.toml"]);
    }
    let mut sim = Running::start(dir, &args);
    let url = sim.next_url();
    (sim, url)
}

/// Returns the absolute path of a file of the repository.
pub(crate) fn repository(path: &str) -> String {
    format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))
}

/// Returns an address of this host on which no process listens.
pub(crate) fn unused_address() -> String {
    format!("http://127.0.0.1:{}", rolltap_testing::free_port())
}

pub(crate) fn json(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

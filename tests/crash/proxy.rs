//! The program under test: `rolltap proxy` on a data directory, killed and started again.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command as StdCommand, Output, Stdio};
use std::time::{Duration, Instant};

use rolltap_testing::limit;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Longer than any start takes on a busy machine.
const START_SECONDS: u64 = 30;

/// The arguments of a proxy, the same for each start.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The directory of the captures.
    pub(crate) data: PathBuf,
    /// The same directory as the tester sees it, if the proxy runs in another mount namespace.
    pub(crate) seen_data: PathBuf,
    /// The words before the program's name.
    pub(crate) entry: Vec<String>,
    /// Standard error of all processes in sequence.
    pub(crate) log: PathBuf,
    pub(crate) upstream: String,
    pub(crate) variables: Vec<(String, String)>,
}

/// A running proxy that is killed on drop.
pub(crate) struct Proxy {
    child: Child,
    pub(crate) place: Place,
    /// The time from the start of the process until it listened.
    pub(crate) started_in: Duration,
}

/// The addresses of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) agents: String,
    pub(crate) admin: String,
}

impl Launch {
    /// Puts the captures in `dir/data` and the log next to them.
    pub(crate) fn new(dir: &Path, upstream: &str) -> Self {
        let (data, log) = (dir.join("data"), dir.join("proxy.log"));
        let (upstream, variables) = (upstream.to_owned(), Vec::new());
        Self { seen_data: data.clone(), data, entry: Vec::new(), log, upstream, variables }
    }

    pub(crate) async fn start(&self) -> Proxy {
        let began = Instant::now();
        let mut child = self.spawn();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut url = async || {
            let line = tokio::time::timeout(limit(START_SECONDS), lines.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("not ready in time: {}", self.log_text()));
            let line = line.unwrap().unwrap_or_else(|| panic!("the proxy ended: {}", self.log_text()));
            line.split_whitespace().last().unwrap().to_owned()
        };
        let place = Place { agents: url().await, admin: url().await };
        Proxy { child, place, started_in: began.elapsed() }
    }

    /// Starts a process that may be killed before it listens.
    pub(crate) fn spawn(&self) -> Child {
        let log = OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::from(self.command());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        command.spawn().unwrap()
    }

    /// Runs the program until it exits, for starts that must fail.
    pub(crate) async fn run(&self) -> Output {
        Command::from(self.command()).kill_on_drop(true).output().await.unwrap()
    }

    fn command(&self) -> StdCommand {
        let mut command = self.rolltap();
        command.args([
            "proxy",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--upstream",
            &self.upstream,
        ]);
        command.arg("--data").arg(&self.data).envs(self.variables.iter().cloned());
        command
    }

    pub(crate) fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Runs `rolltap check` on the captures. Returns its exit code and its output.
    pub(crate) fn check(&self) -> (Option<i32>, String) {
        let output = self.rolltap().arg("check").arg(&self.data).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Returns the files of the captures, in the order of their creation.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let entries = self.seen_data.read_dir().unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|end| end == "rolltap")).collect();
        files.sort();
        files
    }

    /// Returns the program's command, without the variables of the tester's own environment.
    fn rolltap(&self) -> StdCommand {
        let program = env!("CARGO_BIN_EXE_rolltap");
        let mut command = match self.entry.split_first() {
            Some((first, rest)) => {
                let mut command = StdCommand::new(first);
                command.args(rest).arg(program);
                command
            }
            None => StdCommand::new(program),
        };
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ROLLTAP_")) {
            command.env_remove(name);
        }
        command
    }
}

impl Proxy {
    /// Sends `kill -9` and waits until the process is gone.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Stops the proxy as a user does. Returns the exit code.
    pub(crate) async fn stop(mut self) -> Option<i32> {
        let kill = format!("kill -TERM {}", self.child.id().unwrap());
        assert!(StdCommand::new("sh").args(["-c", &kill]).status().unwrap().success());
        self.child.wait().await.unwrap().code()
    }
}

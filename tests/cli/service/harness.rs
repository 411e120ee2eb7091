//! A service whose trials wait at a gate, and its clients.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use reqwest::{Client, Response, StatusCode};
use rolltap_testing::{http_client, limit};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::program::{Running, rolltap};

/// The directory of a service, its tasks, and the gate at which its trials wait.
pub(super) struct Stage {
    dir: TempDir,
    sim: String,
    _sim: Running,
}

/// A running service, or a proxy.
pub(super) struct Service {
    running: Running,
    pub(super) url: String,
    http: Client,
}

impl Stage {
    /// Makes a dataset `tasks` of the tasks `one` and `two`.
    pub(super) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        for name in ["one", "two"] {
            let task = dir.path().join("tasks").join(name);
            for (file, text) in [
                ("instruction.md", "Do it."),
                ("task.toml", ""),
                ("environment/Dockerfile", "FROM x\nWORKDIR /app\n"),
                ("tests/test.sh", "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n"),
            ] {
                let path = task.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
        }
        let mut sim = Running::start(dir.path(), &["sim", "--listen", "127.0.0.1:0"]);
        Self { dir, sim: sim.next_url(), _sim: sim }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the service on the jobs of this directory.
    pub(super) fn serve(&self, options: &[&str]) -> Service {
        let gate = self.path().join("gate");
        // The agent of a killed service ends with the directory of the test.
        let (gate, dir) = (gate.display(), self.path().display());
        let command = format!("until [ -e {gate} ] || [ ! -d {dir} ]; do sleep 0.02; done");
        self.serve_command(&command, options)
    }

    /// Starts the service with this command as its agent.
    pub(super) fn serve_command(&self, command: &str, options: &[&str]) -> Service {
        let args = ["serve", "-p", "tasks", "-a", "command", "--agent-command", command, "-e", "local"];
        let places = ["--upstream", &self.sim, "--admin", "127.0.0.1:0", "-m", "sim"];
        Service::start(self.path(), &[&args[..], &places, options].concat())
    }

    /// Replaces the tests of a task by this script.
    pub(super) fn reward_by(&self, task: &str, script: &str) {
        let path = self.path().join("tasks").join(task).join("tests/test.sh");
        fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    }

    /// Lets trials end.
    pub(super) fn open_gate(&self) {
        fs::write(self.path().join("gate"), "").unwrap();
    }

    /// Returns the logs of the services so far.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap()
    }

    pub(super) fn close_gate(&self) {
        fs::remove_file(self.path().join("gate")).unwrap();
    }
}

impl Service {
    fn start(dir: &Path, args: &[&str]) -> Self {
        let log = fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).unwrap();
        let mut running = Running::logging_to(rolltap(dir, args).stdout(Stdio::piped()), log);
        let url = running.next_url();
        Self { running, url, http: http_client() }
    }

    /// Starts a proxy without the service.
    pub(super) fn proxy(dir: &Path) -> Self {
        let args = ["proxy", "--upstream", "http://127.0.0.1:1", "--data", "data"];
        let places = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut service = Self::start(dir, &[&args[..], &places].concat());
        service.url = service.running.next_url();
        service
    }

    pub(super) async fn submit(&self, request: &Value) -> (StatusCode, Value) {
        let response = self.post("/v1/submissions", request).await;
        (response.status(), response.json().await.unwrap())
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Response {
        self.http.post(format!("{}{path}", self.url)).json(body).send().await.unwrap()
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        self.http.get(format!("{}{path}", self.url)).send().await.unwrap().json().await.unwrap()
    }

    pub(super) async fn text(&self, path: &str) -> String {
        self.http.get(format!("{}{path}", self.url)).send().await.unwrap().text().await.unwrap()
    }

    /// Returns the trials of all closed groups, without their rows.
    pub(super) async fn closed_groups(&self) -> Vec<Value> {
        let lines = self.text("/v1/rollouts?closed_groups=true&superseded=false").await;
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until the submission has this state, and returns it.
    pub(super) async fn until(&self, submission: &Value, state: &str) -> Value {
        let id = submission["id"].as_str().unwrap_or_else(|| panic!("no submission: {submission}"));
        let deadline = Instant::now() + limit(60);
        loop {
            let now = self.get(&format!("/v1/submissions/{id}")).await;
            if now["state"] == state {
                return now;
            }
            assert!(Instant::now() < deadline, "not {state}: {now}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// Ends the service as Ctrl-C does.
    pub(super) fn stop(self) {
        self.running.signal("INT");
        let (code, _) = self.running.wait(limit(60));
        assert_eq!(code, Some(0));
    }

    pub(super) fn kill(self) {
        self.running.signal("KILL");
        self.running.wait(limit(60));
    }
}

/// Returns a request for a task.
pub(super) fn request(task: &str, samples: u32, key: &str) -> Value {
    json!({"task": task, "samples": samples, "idempotency_key": key})
}

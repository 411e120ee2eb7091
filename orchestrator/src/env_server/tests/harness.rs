//! A server of its own per test, tasks, and a caller.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rolltap_testing::limit;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::env_server::{self, GymSettings, RunningGym};
use crate::environment::EnvironmentKind;

/// Tests that pass if the workdir has a file `done`.
pub(super) const TESTS: &str = "#!/bin/sh\n[ -f /app/done ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n";

pub(super) fn settings() -> GymSettings {
    GymSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        token: None,
        environment: EnvironmentKind::Local,
        max_envs: GymSettings::DEFAULT_MAX_ENVS,
        max_starts: GymSettings::DEFAULT_MAX_STARTS,
        lease: GymSettings::DEFAULT_LEASE,
    }
}

/// A server, a folder for tasks, and a caller.
pub(super) struct Stage {
    pub(super) server: RunningGym,
    tasks: TempDir,
    client: reqwest::Client,
}

/// The answer to a call.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Reply {
    /// Returns the status and the code of the error.
    pub(super) fn error(&self) -> (u16, &str) {
        (self.status, self.body["error"]["code"].as_str().unwrap_or_default())
    }

    pub(super) fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_default()
    }

    pub(super) fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.body
    }
}

impl Stage {
    pub(super) async fn start() -> Self {
        Self::with(settings()).await
    }

    pub(super) async fn with(settings: GymSettings) -> Self {
        let server = env_server::start(settings).await.unwrap();
        Self { server, tasks: tempfile::tempdir().unwrap(), client: rolltap_testing::http_client() }
    }

    /// Makes a task with these files. They replace the files of a task whose work is `touch done`.
    pub(super) fn task(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let dir = self.tasks.path().join(name);
        let usual = [
            ("task.toml", "[environment]\ndocker_image = \"none\"\nworkdir = \"/app\"\n"),
            ("instruction.md", "Make a file /app/done."),
            ("tests/test.sh", TESTS),
        ];
        for (path, text) in usual.iter().chain(files) {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address())
    }

    pub(super) async fn send(&self, method: &str, path: &str, body: String) -> Reply {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let answer = self.client.request(method, self.url(path)).body(body).send().await.unwrap();
        let status = answer.status().as_u16();
        Reply { status, body: answer.json().await.unwrap() }
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, body.to_string()).await
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, String::new()).await
    }

    /// Creates an environment of this task without a reset.
    pub(super) async fn create(&self, task: &Path, more: Value) -> Env<'_> {
        let mut body = json!({"task": task});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let created = self.post("/v1/envs", body).await.ok();
        Env { stage: self, id: created["env_id"].as_str().unwrap().to_owned() }
    }

    /// Creates an environment of the usual task and resets it.
    pub(super) async fn ready(&self, more: Value) -> Env<'_> {
        let env = self.create(&self.task("usual", &[]), more).await;
        env.reset().await.ok();
        env
    }
}

/// An environment of the server.
pub(super) struct Env<'s> {
    pub(super) stage: &'s Stage,
    pub(super) id: String,
}

impl Env<'_> {
    pub(super) fn path(&self, call: &str) -> String {
        format!("/v1/envs/{}{call}", self.id)
    }

    pub(super) async fn reset(&self) -> Reply {
        self.stage.post(&self.path("/reset"), json!({})).await
    }

    pub(super) async fn step(&self, action: Value) -> Reply {
        self.stage.post(&self.path("/step"), json!({"action": action})).await
    }

    pub(super) async fn keys(&self, keystrokes: &str, duration: f64) -> Value {
        self.step(json!({"keystrokes": keystrokes, "duration": duration})).await.ok()
    }

    pub(super) async fn complete(&self) -> Value {
        self.step(json!({"commands": [], "task_complete": true})).await.ok()
    }

    pub(super) async fn status(&self) -> String {
        self.stage.get(&self.path("")).await.ok()["status"].as_str().unwrap().to_owned()
    }

    /// Types these keystrokes and waits until the terminal has shown all these texts, in any order and with anything
    /// between.
    pub(super) async fn type_and_see(&self, keystrokes: &str, seen: &[&str]) -> Value {
        let mut reply = self.keys(keystrokes, 0.2).await;
        let mut all = String::new();
        let end = Instant::now() + limit(60);
        loop {
            all.push_str(reply["observation"].as_str().unwrap());
            if seen.iter().all(|text| all.contains(text)) {
                return reply;
            }
            assert!(Instant::now() < end, "{seen:?} not in {all}");
            reply = self.keys("", 0.2).await;
        }
    }

    /// Returns the directory of a local environment, as its shell reports it.
    pub(super) async fn workdir(&self) -> PathBuf {
        let reply = self.type_and_see("echo \"at=$PWD=\"\n", &["at=/"]).await;
        let observation = reply["observation"].as_str().unwrap();
        let path = observation.split("at=/").nth(1).unwrap().split('=').next().unwrap();
        PathBuf::from(format!("/{path}"))
    }
}

/// Waits until a condition is true.
pub(super) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let end = Instant::now() + limit(60);
    while !is_so().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

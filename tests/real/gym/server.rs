//! A server of its own per test, and a caller.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use reqwest::Method;
use rolltap_testing::limit;
use serde_json::{Value, json};

use crate::program::text;

/// A `rolltap env` process that is killed with its test.
pub(crate) struct Server {
    child: Child,
    url: String,
    client: reqwest::Client,
}

impl Server {
    pub(crate) fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rolltap"));
        command.args(["env", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { child, url, client: rolltap_testing::http_client() }
    }

    /// Returns the status and the body of an answer.
    pub(crate) async fn call(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let request = self.client.request(method, format!("{}{path}", self.url)).json(body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    pub(crate) async fn create(&self, task: &Path) -> Env<'_> {
        self.create_with(task, json!({})).await
    }

    pub(crate) async fn create_with(&self, task: &Path, mut asked: Value) -> Env<'_> {
        asked["task"] = json!(task);
        let (status, made) = self.call(Method::POST, "/v1/envs", &asked).await;
        assert_eq!(status, 201, "{made}");
        Env { server: self, id: made["env_id"].as_str().unwrap().to_owned() }
    }

    /// Returns its job name at the engine.
    fn job(&self) -> String {
        format!("env-{}", self.child.id())
    }

    /// Returns the ids of its containers.
    pub(crate) fn containers(&self) -> Vec<String> {
        containers(&format!("label=dev.rolltap.job={}", self.job()))
    }

    /// Stops the server as an operator does, and returns the containers that are left.
    pub(crate) fn terminate(mut self) -> Vec<String> {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
        self.containers()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Kills the server without a chance to clean up.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let left = self.containers();
        if !left.is_empty() {
            let _ = Command::new("docker").args(["rm", "-f"]).args(left).output();
        }
    }
}

/// Returns the ids of containers, running or not.
pub(crate) fn containers(filter: &str) -> Vec<String> {
    let listed = Command::new("docker").args(["ps", "-aq", "--filter", filter]).output().unwrap();
    text(&listed.stdout).lines().map(str::to_owned).collect()
}

/// An environment of the server.
pub(crate) struct Env<'s> {
    server: &'s Server,
    pub(crate) id: String,
}

impl Env<'_> {
    fn path(&self, call: &str) -> String {
        format!("/v1/envs/{}{call}", self.id)
    }

    pub(crate) async fn reset(&self) -> (u16, Value) {
        self.server.call(Method::POST, &self.path("/reset"), &json!({})).await
    }

    pub(crate) async fn step(&self, action: Value) -> (u16, Value) {
        self.server.call(Method::POST, &self.path("/step"), &json!({"action": action})).await
    }

    pub(crate) async fn close(&self) {
        let (status, closed) = self.server.call(Method::DELETE, &self.path(""), &json!({})).await;
        assert_eq!(status, 200, "{closed}");
    }

    /// Resets the environment.
    pub(crate) async fn begin(&self) {
        let (status, begun) = self.reset().await;
        assert_eq!(status, 200, "{begun}");
    }

    /// Types these keystrokes and polls until the terminal shows all these texts at once. Returns the screen without
    /// trailing blanks.
    pub(crate) async fn type_and_see(&self, keystrokes: &str, seen: &[&str]) -> String {
        let mut keys = keystrokes;
        let end = Instant::now() + limit(60);
        loop {
            let (status, reply) = self.step(json!({"keystrokes": keys, "duration": 0.3})).await;
            assert_eq!(status, 200, "{reply}");
            let lines = reply["observation"].as_str().unwrap().lines();
            let shown: String = lines.map(|line| format!("{}\n", line.trim_end())).collect();
            if seen.iter().all(|text| shown.contains(text)) {
                return shown;
            }
            assert!(Instant::now() < end, "{seen:?} not in {shown}");
            keys = "";
        }
    }

    /// Sends the completion of the task and returns the reward.
    pub(crate) async fn complete(&self) -> Value {
        let (status, reply) = self.step(json!({"commands": [], "task_complete": true})).await;
        assert_eq!((status, &reply["done"]), (200, &json!(true)), "{reply}");
        assert_eq!(reply["info"]["reward_valid"], json!(true), "{reply}");
        reply["reward"].clone()
    }
}

/// Makes a task of these files.
pub(crate) fn task(dir: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

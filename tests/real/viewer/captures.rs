//! A proxy in front of the simulator, whose data directory the viewer reads while trials are recorded.

use std::cell::Cell;
use std::path::PathBuf;

use reqwest::{Client, Method};
use rolltap_testing::http_client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::program::Server;

/// A proxy with its simulator.
pub(crate) struct Captures {
    runtime: Runtime,
    http: Client,
    proxy: Server,
    _simulator: Server,
    dir: TempDir,
    /// The token of the admin plane, if it has one.
    token: Option<&'static str>,
    recorded: Cell<usize>,
}

impl Captures {
    /// Starts both. Every answer of the model is this text.
    pub(crate) fn answering(text: &str) -> Self {
        Self::start(text, None)
    }

    /// Starts both. The admin plane demands this token.
    pub(crate) fn guarded_by(token: &'static str) -> Self {
        Self::start("Hello.", Some(token))
    }

    fn start(text: &str, token: Option<&'static str>) -> Self {
        let dir = TempDir::new().unwrap();
        let script = dir.path().join("script.toml");
        let turn = json!({"answer": [{"content": text}]});
        let conversations = json!({"conversation": [{"turn": [turn]}]});
        std::fs::write(&script, toml::to_string(&conversations).unwrap()).unwrap();
        let simulator =
            Server::start(&["sim", "--listen", "127.0.0.1:0", "--script", script.to_str().unwrap()], 1);
        let data = dir.path().join("data").display().to_string();
        let addresses = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let token_file = dir.path().join("token").display().to_string();
        std::fs::write(&token_file, token.unwrap_or_default()).unwrap();
        let guard: &[&str] = if token.is_some() { &["--admin-token-file", &token_file] } else { &[] };
        let proxy = [&["proxy", "--upstream", &simulator.urls[0], "--data", &data], &addresses[..], guard];
        let proxy = Server::start(&proxy.concat(), 3);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Self {
            runtime,
            http: http_client(),
            proxy,
            _simulator: simulator,
            dir,
            token,
            recorded: Cell::new(0),
        }
    }

    /// Returns the data directory of the proxy.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Returns the address of the first page on the admin plane.
    pub(crate) fn pages(&self) -> &str {
        &self.proxy.urls[2]
    }

    /// Records a trial of one call, and returns its id.
    pub(crate) fn record(&self, task: &str, message: &str) -> String {
        self.record_calls(task, message, 1)
    }

    /// Records a trial that makes the same call some number of times, and returns its id. The policy version changes
    /// in a pause before each repetition.
    pub(crate) fn record_calls(&self, task: &str, message: &str, times: usize) -> String {
        let (id, url) = self.open(task);
        let messages = json!([{"role": "user", "content": message}]);
        let call = json!({"model": "sim", "messages": messages, "user": message});
        for time in 0..times {
            if time > 0 {
                self.send(Method::POST, "/v1/policy/pause", &json!({"wait": true}));
                self.send(Method::POST, "/v1/policy", &json!({"version": format!("step-{time}")}));
                self.send(Method::POST, "/v1/policy/resume", &json!({}));
            }
            self.send(Method::POST, &url, &call);
        }
        self.complete(&id);
        id
    }

    /// Records a trial of two turns, and returns its id. The second turn offers a tool, which the template renders before
    /// the first turn.
    pub(crate) fn record_with_late_tool(&self, task: &str, message: &str) -> String {
        let (id, url) = self.open(task);
        let mut messages = vec![json!({"role": "user", "content": message})];
        let answer = self.send(Method::POST, &url, &json!({"model": "sim", "messages": messages}));
        messages.push(json!({"role": "assistant", "content": answer["choices"][0]["message"]["content"]}));
        messages.push(json!({"role": "user", "content": "again"}));
        let tool =
            json!({"type": "function", "function": {"name": "late", "parameters": {"type": "object"}}});
        self.send(Method::POST, &url, &json!({"model": "sim", "messages": messages, "tools": [tool]}));
        self.complete(&id);
        id
    }

    /// Opens a trial. Returns its id and the address of its chat completions.
    fn open(&self, task: &str) -> (String, String) {
        let sample = self.recorded.replace(self.recorded.get() + 1);
        let trial = json!({"task_id": task, "group_id": task, "sample_index": sample});
        let trial = self.send(Method::POST, "/v1/trials", &trial);
        let base = trial["base_urls"]["openai"].as_str().unwrap();
        (trial["trial_id"].as_str().unwrap().to_owned(), format!("{base}/chat/completions"))
    }

    fn complete(&self, id: &str) {
        self.send(Method::POST, &format!("/v1/trials/{id}/seal"), &json!({}));
        self.send(Method::PUT, &format!("/v1/trials/{id}/reward"), &json!({"rewards": {"reward": 1.0}}));
    }

    /// Sends a request to the admin plane, or to a whole address.
    fn send(&self, method: Method, path: &str, body: &Value) -> Value {
        let url =
            if path.starts_with('/') { format!("{}{path}", self.proxy.urls[1]) } else { path.to_owned() };
        let mut request = self.http.request(method, &url).json(body);
        // An agent sends no token of the admin plane.
        if let Some(token) = self.token.filter(|_| path.starts_with('/')) {
            request = request.bearer_auth(token);
        }
        self.runtime.block_on(async {
            let answer = request.send().await.unwrap();
            assert!(answer.status().is_success(), "{url}: {}", answer.text().await.unwrap());
            answer.json().await.unwrap()
        })
    }
}

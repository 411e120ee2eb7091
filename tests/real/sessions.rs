//! Session ids before real vLLM, through vLLM's own router, which keeps each session at one engine.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rolltap_testing::{eventually, free_port, get};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Stage, bare_vllm, testbed, vllm};

/// vLLM's router in front of two engines. It ends with the value.
struct Router {
    child: Child,
    url: String,
    log: PathBuf,
    _dir: TempDir,
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Router {
    async fn start() -> Self {
        let (dir, port, metrics) = (TempDir::new().unwrap(), free_port(), free_port());
        let log = dir.path().join("log");
        let mut command = Command::new(testbed("ROLLTAP_TESTBED_ROUTER"));
        command.args(["--worker-urls", &vllm(), &bare_vllm(), "--policy", "sticky_least_loaded"]);
        command.args(["--port", &port.to_string(), "--prometheus-port", &metrics.to_string()]);
        command.args(["--log-level", "debug"]);
        let written = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(written.try_clone().unwrap()).stderr(written);
        let router =
            Self { child: command.spawn().unwrap(), url: format!("http://127.0.0.1:{port}"), log, _dir: dir };
        let health = format!("{}/health", router.url);
        let answers = async || get(&health).await.is_ok_and(|answer| answer.status().is_success());
        eventually("the router answers", answers).await;
        router
    }

    /// Returns the lines of the router's log with this text.
    fn lines(&self, text: &str) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).unwrap();
        log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

/// Sends a turn, and appends the answer to the messages.
async fn say(stage: &Stage, base: &str, messages: &mut Vec<Value>, text: &str) {
    messages.push(json!({"role": "user", "content": text}));
    let request = json!({"model": "tiny", "messages": messages, "max_tokens": 8, "temperature": 0});
    let answer = stage.post(base, "/chat/completions", &request).await;
    assert_eq!(answer.status(), 200);
    let answer: Value = answer.json().await.unwrap();
    messages.push(answer["choices"][0]["message"].clone());
}

#[tokio::test]
#[ignore = "needs vLLM and its router: run ./scripts/test"]
async fn a_router_keeps_each_conversation_at_one_engine_until_its_trial_is_sealed() {
    let router = Router::start().await;
    let stage = Stage::with_tokenizer(router.url.clone(), testbed("ROLLTAP_TESTBED_MODEL")).await;
    let trial = stage.open().await;
    let base = trial.base_urls.openai.to_string();
    let (mut main, mut sub_agent) = (Vec::new(), Vec::new());
    for turn in 0..3 {
        say(&stage, &base, &mut main, &format!("Main task, turn {turn}.")).await;
    }
    say(&stage, &base, &mut sub_agent, "Another task.").await;
    let of_trial = |text: &str| router.lines(&format!("{text} '{}~", trial.trial_id));
    eventually("the router has both sessions", async || of_trial("new session").len() == 2).await;
    // The second and the third turn of the main conversation.
    assert_eq!(of_trial("SLL: session").len(), 2, "{:?}", of_trial("SLL: session"));
    assert!(router.lines("finished session").is_empty());
    stage.rollout(&trial).await;
    eventually("the router has forgotten both sessions", async || of_trial("finished session").len() == 2)
        .await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn vllm_answers_calls_of_a_session() {
    let stage = Stage::set().await;
    let trial = stage.open().await;
    let mut messages = Vec::new();
    say(&stage, &trial.base_urls.openai.to_string(), &mut messages, "Hello.").await;
    // vLLM has no call for the end of a session, which costs nothing.
    assert!(!stage.rollout(&trial).await.is_empty());
}

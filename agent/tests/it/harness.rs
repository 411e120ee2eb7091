//! A shell on a real pseudo-terminal, and models for the agent.

use std::future::Future;
use std::sync::Arc;

use axum::routing::post;
use axum::{Json, Router};
use rolltap_agent::terminal::{Terminal, TerminalSize};
use rolltap_agent::{AgentError, AgentReport, AgentSettings, Message, run};
use rolltap_testing::limit;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A bash on a pseudo-terminal in a directory of its own. Both are removed on drop.
pub(crate) struct Shell {
    pub(crate) dir: tempfile::TempDir,
    _child: tokio::process::Child,
}

pub(crate) fn shell() -> (Shell, Terminal) {
    let dir = tempfile::tempdir().unwrap();
    let size = TerminalSize::default();
    let (pty, pts) = pty_process::open().unwrap();
    pty.resize(pty_process::Size::new(size.rows, size.cols)).unwrap();
    let child = pty_process::Command::new("bash")
        .args(["--norc", "--noprofile", "-i"])
        .env("TERM", "xterm-256color")
        .env("PS1", "$ ")
        .env_remove("PROMPT_COMMAND")
        .current_dir(dir.path())
        .kill_on_drop(true)
        .spawn(pts)
        .unwrap();
    let (reader, writer) = pty.into_split();
    (Shell { dir, _child: child }, Terminal::new(reader, writer, size))
}

/// Starts a model. `answer` gets the number of earlier user messages and the last one, and returns the content of the
/// answer.
pub(crate) async fn model<F>(answer: F) -> AgentSettings
where
    F: Fn(usize, &str) -> String + Send + Sync + 'static,
{
    let answer = Arc::new(answer);
    serve(move |messages| {
        let answer = Arc::clone(&answer);
        async move {
            let before = messages.len() / 2;
            let content = answer(before, &messages.last().unwrap().content);
            let choice =
                json!({"message": {"role": "assistant", "content": content}, "finish_reason": "stop"});
            json!({"choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 2}})
        }
    })
    .await
}

/// Starts a server of chat completions on loopback and returns the settings that lead to it.
pub(crate) async fn serve<F, A>(answer: F) -> AgentSettings
where
    F: Fn(Vec<Message>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Value> + Send + 'static,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings =
        AgentSettings::new(format!("http://{}/v1", listener.local_addr().unwrap()), "key", "scripted");
    let handler = move |Json(body): Json<Value>| {
        let messages = serde_json::from_value(body["messages"].clone()).unwrap();
        let answer = answer(messages);
        async move { Json(answer.await) }
    };
    let app = Router::new().route("/v1/chat/completions", post(handler));
    tokio::spawn(async move { axum::serve(listener, app).await });
    settings
}

/// Returns an answer in the agent's format.
pub(crate) fn typing(keystrokes: &[&str], task_complete: bool) -> String {
    let commands: Vec<_> =
        keystrokes.iter().map(|keys| json!({"keystrokes": keys, "duration": 0.05})).collect();
    json!({"analysis": "a", "plan": "p", "commands": commands, "task_complete": task_complete}).to_string()
}

/// Returns an answer that only reads the screen again.
pub(crate) fn observing() -> String {
    typing(&[""], false)
}

pub(crate) async fn run_in(settings: AgentSettings, terminal: Terminal) -> Result<AgentReport, AgentError> {
    let run = run(settings, "Create hello.txt.", &terminal, CancellationToken::new());
    tokio::time::timeout(limit(60), run).await.unwrap_or_else(|_| panic!("the run did not end"))
}

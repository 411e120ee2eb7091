//! A job in front of an upstream that answers well but sends nothing trainable: it stops with a reason.

use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;

use super::jobs::{results, task};
use super::program::run;

/// Starts a server whose answers have no token ids and no logprobs, like a router that removes them.
async fn stripping() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "No."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    });
    let models = json!({"object": "list", "data": [{"id": "m", "object": "model"}]});
    let router = Router::new()
        .route("/health", get(async || ""))
        .route("/v1/models", get(async || Json(models)))
        .route("/v1/chat/completions", post(async || Json(answer)));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_captures_nothing_to_train_stops_after_some_trials_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "one", "echo 1 > /logs/verifier/reward.txt").display().to_string();
    let upstream = stripping().await;
    let args = ["run", "-p", &task, "-a", "terminal", "-e", "local", "-n", "1", "--job-name", "it"];
    let more = ["--max-turns", "1", "--upstream", &upstream, "-k", "4", "--no-preflight"];
    let job = |more_still: &[&str]| run(dir.path(), &[&args[..], &more, more_still].concat());
    let ended = job(&["--max-empty-trials", "2"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("2 trials in a row were captured without anything to train"), "{ended:?}");
    assert!(ended.stdout.contains("warning: nothing can be trained of 2 of 2 calls"), "{ended:?}");
    assert!(ended.stderr.contains("missing_token_ids") && ended.stderr.contains(&upstream), "{ended:?}");
    assert_eq!(results(&dir.path().join("jobs/it")).len(), 2);

    let ended = job(&["--max-empty-trials", "0"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(results(&dir.path().join("jobs/it")).len(), 4);
}

//! A marked retry gets the answer of the call that it repeats; nothing else does.

use reqwest::Response;
use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::call::CallStatus;
use rolltap_testing::eventually;
use serde_json::{Value, json};

use crate::stage::{Stage, request};

async fn send(stage: &Stage, trial: &TrialOpened, body: &Value, retry_count: Option<u32>) -> Response {
    let url = format!("{}/chat/completions", trial.base_urls.openai);
    let mut sent = stage.http.post(url).json(body);
    if let Some(count) = retry_count {
        sent = sent.header("x-stainless-retry-count", count);
    }
    sent.send().await.unwrap()
}

async fn text(stage: &Stage, trial: &TrialOpened, body: &Value, retry_count: Option<u32>) -> String {
    send(stage, trial, body, retry_count).await.text().await.unwrap()
}

#[tokio::test]
async fn a_marked_retry_of_an_answered_call_gets_that_answer() {
    let stage = Stage::random().await;
    for stream in [false, true] {
        let trial = stage.open(json!({})).await;
        let body = request(json!({"stream": stream}));
        let first = send(&stage, &trial, &body, Some(0)).await;
        let (head, first) = (first.headers().clone(), first.text().await.unwrap());
        let retry = send(&stage, &trial, &body, Some(1)).await;
        assert_eq!(retry.headers()["content-type"], head["content-type"]);
        assert_eq!(retry.text().await.unwrap(), first);
        assert_eq!(stage.calls(&trial).await.len(), 1, "it was not sampled twice");
    }
}

#[tokio::test]
async fn the_same_body_without_a_mark_is_a_new_sample() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    let body = request(json!({}));
    let first = text(&stage, &trial, &body, Some(0)).await;
    assert_ne!(text(&stage, &trial, &body, Some(0)).await, first);
    assert_ne!(text(&stage, &trial, &body, None).await, first);
    let other = request(json!({"temperature": 0.5}));
    text(&stage, &trial, &other, Some(1)).await;
    assert_eq!(stage.calls(&trial).await.len(), 4);
}

#[tokio::test]
async fn a_retry_of_a_call_that_failed_or_was_cancelled_is_sampled() {
    let stage = Stage::saying("content = \"one two three four\"\nstall_after = 2").await;
    let trial = stage.open(json!({})).await;
    let body = request(json!({"stream": true}));
    let mut left = send(&stage, &trial, &body, Some(0)).await;
    left.chunk().await.unwrap().unwrap();
    drop(left);
    eventually("the call is cancelled", async || stage.calls(&trial).await.len() == 1).await;
    assert_eq!(stage.calls(&trial).await[0].status, CallStatus::Cancelled);
    let mut again = send(&stage, &trial, &body, Some(1)).await;
    again.chunk().await.unwrap().unwrap();
    assert_eq!(stage.status(&trial).await.calls.in_flight, 1);
}

#[tokio::test]
async fn a_retry_takes_over_the_stream_under_way() {
    let stage = Stage::saying("content = \"one two three four five six\"\ntoken_delay_ms = 150").await;
    let trial = stage.open(json!({})).await;
    let body = request(json!({"stream": true}));
    let mut first = send(&stage, &trial, &body, Some(0)).await;
    let mut begun = first.chunk().await.unwrap().unwrap().to_vec();
    begun.extend(first.chunk().await.unwrap().unwrap());
    // The first connection stays open, as behind a balancer that swallowed its end.
    let retried = text(&stage, &trial, &body, Some(1)).await;
    assert!(retried.starts_with(std::str::from_utf8(&begun).unwrap()), "it begins where the call began");
    assert!(retried.ends_with("data: [DONE]\n\n"));
    while let Ok(Some(_)) = first.chunk().await {}
    let calls = stage.calls(&trial).await;
    assert_eq!((calls.len(), calls[0].status), (1, CallStatus::Complete));
}

#[tokio::test]
async fn a_retry_waits_for_the_answer_that_comes_whole() {
    let stage = Stage::saying("content = \"slow\"\ndelay_ms = 600").await;
    let trial = stage.open(json!({})).await;
    let body = request(json!({}));
    let first = async { text(&stage, &trial, &body, Some(0)).await };
    let retry = async {
        eventually("the first is under way", async || stage.status(&trial).await.calls.in_flight == 1).await;
        text(&stage, &trial, &body, Some(1)).await
    };
    let (first, retry) = tokio::join!(first, retry);
    assert_eq!(first, retry);
    assert_eq!(stage.calls(&trial).await.len(), 1);
}

#[tokio::test]
async fn a_sealed_trial_answers_no_retry() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    let body = request(json!({}));
    text(&stage, &trial, &body, Some(0)).await;
    stage.seal(&trial).await;
    assert_eq!(send(&stage, &trial, &body, Some(1)).await.status().as_u16(), 410);
}

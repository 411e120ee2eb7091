//! A marked retry gets the answer of an equal call whose agent left before the end. Every other request is sampled. The
//! first half is tested in `tests/crash/broken_disk.rs`: if the disk fails, an answer waits long enough for its agent
//! to leave.

use std::collections::HashSet;

use futures_util::future::join_all;
use reqwest::Response;
use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::call::CallStatus;
use rolltap_testing::eventually;
use serde_json::{Value, json};

use crate::harness::{Stage, request};

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
async fn a_marked_retry_of_an_answer_that_was_handed_over_is_sampled() {
    let stage = Stage::random().await;
    for stream in [false, true] {
        let trial = stage.open(json!({})).await;
        let body = request(json!({"stream": stream}));
        let first = text(&stage, &trial, &body, Some(0)).await;
        assert_ne!(text(&stage, &trial, &body, Some(1)).await, first);
        assert_eq!(stage.calls(&trial).await.len(), 2);
    }
}

#[tokio::test]
async fn equal_calls_side_by_side_get_a_sample_each_when_all_of_them_are_retried() {
    let stage = Stage::random().await;
    for stream in [false, true] {
        let trial = stage.open(json!({})).await;
        let body = request(json!({"stream": stream}));
        stage.upstream.set_refusing(true);
        let refused = join_all((0..4).map(|_| send(&stage, &trial, &body, Some(0)))).await;
        assert!(refused.iter().all(|response| response.status().as_u16() == 503));
        stage.upstream.set_refusing(false);
        let answers = join_all((0..4).map(|_| text(&stage, &trial, &body, Some(1)))).await;
        assert_eq!(answers.iter().collect::<HashSet<_>>().len(), 4, "{answers:#?}");
        assert_eq!(stage.status(&trial).await.calls.complete, 4);
    }
}

#[tokio::test]
async fn the_retry_of_a_call_that_a_limit_refused_gets_no_earlier_sample() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({"limits": {"max_calls": 1}})).await;
    let body = request(json!({}));
    text(&stage, &trial, &body, Some(0)).await;
    assert_eq!(send(&stage, &trial, &body, Some(0)).await.status().as_u16(), 429);
    assert_eq!(send(&stage, &trial, &body, Some(1)).await.status().as_u16(), 429);
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
async fn a_call_whose_own_connection_is_alive_is_taken_over_by_no_retry() {
    let stage = Stage::saying("content = \"one two three four five six\"\ntoken_delay_ms = 50").await;
    for stream in [false, true] {
        let trial = stage.open(json!({})).await;
        let body = request(json!({"stream": stream}));
        let first = text(&stage, &trial, &body, Some(0));
        let retry = async {
            eventually("the first is under way", async || stage.status(&trial).await.calls.in_flight == 1)
                .await;
            text(&stage, &trial, &body, Some(1)).await
        };
        let (first, retry) = tokio::join!(first, retry);
        for answer in [first, retry] {
            let end = if stream { "data: [DONE]\n\n" } else { "six" };
            assert!(answer.contains(end), "{answer}");
        }
        assert_eq!(stage.status(&trial).await.calls.complete, 2);
    }
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

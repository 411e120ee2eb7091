//! Rewards: early, late, repeated, for unknown trials, and missing.

use rolltap_proxy::api::TrialState;
use rolltap_testing::{eventually, limit};
use serde_json::{Value, json};

use crate::harness::{Stage, answer, request};

fn message(body: &Value) -> &str {
    body["error"]["message"].as_str().unwrap()
}

#[tokio::test]
async fn an_early_reward_is_stored_and_joins_at_the_seal() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    stage.chat(&trial, &request(json!({}))).await;
    let (status, body) = stage.reward(&trial, json!({"reward": 0.5})).await;
    assert_eq!((status, &body["state"], &body["completed_at"]), (200, &json!("open"), &Value::Null));
    assert!(stage.feed("").await.is_empty(), "its agent is at work");

    let stage = stage.restarted().await;
    let again = stage.http.post(stage.agent("/v1/chat/completions")).bearer_auth(&trial.key);
    assert_eq!(answer(again.json(&request(json!({})))).await.0, 200, "it continues");
    let sealed = stage.seal(&trial).await;
    assert!(sealed.state == TrialState::Sealed && sealed.completed_at >= sealed.sealed_at);
    let line = stage.feed("").await.remove(0);
    assert_eq!((&line.trial_id, line.reward, line.rows()[0].reward), (&trial.trial_id, Some(0.5), Some(0.5)));
}

#[tokio::test]
async fn a_late_reward_makes_the_trial_complete_and_twice_is_once() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    let sealed = stage.seal(&trial).await;
    assert_eq!(sealed.completed_at, None, "its reward has not come");
    let reward = json!({"rewards": {"tests": 1.0, "style": 0.25}, "reward": 1.0});
    let (status, first) = stage.reward(&trial, reward.clone()).await;
    assert!(status == 200 && first["completed_at"].is_string());
    assert_eq!(stage.reward(&trial, reward).await, (200, first.clone()));
    let (status, other) = stage.reward(&trial, json!({"reward": 0.0})).await;
    assert!(status == 409 && message(&other).contains("another reward already"), "{other}");
    assert_eq!(stage.feed("").await.len(), 1);
    let status = stage.status(&trial).await;
    assert_eq!((status.reward, json!(status.completed_at)), (Some(1.0), first["completed_at"].clone()));
}

#[tokio::test]
async fn a_reward_of_an_unknown_trial_is_a_404_with_a_remedy() {
    let stage = Stage::random().await;
    for (method, path) in [("PUT", "reward"), ("POST", "seal")] {
        let url = stage.admin(&format!("/v1/trials/nobody/{path}"));
        let (status, body) = answer(stage.http.request(method.parse().unwrap(), url).json(&json!({}))).await;
        assert_eq!(status, 404);
        let message = message(&body);
        assert!(
            message.contains("no trial nobody") && message.contains("POST /v1/trials opens one"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_reward_that_does_not_come_in_time_is_null_and_comes_no_more() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({"reward_deadline": 0.05})).await;
    let in_time = stage.open(json!({"reward_deadline": 3600})).await;
    stage.chat(&trial, &request(json!({}))).await;
    stage.seal(&trial).await;
    stage.seal(&in_time).await;
    let line = stage.feed("?wait=30").await.remove(0);
    assert_eq!((&line.trial_id, line.reward, line.reward_valid), (&trial.trial_id, None, false));
    assert_eq!(line.failure_cause.as_deref(), Some("reward_deadline"));
    let row = &line.rows()[0];
    assert_eq!(
        (row.reward, row.reward_valid, row.failure_cause.as_deref()),
        (None, false, Some("reward_deadline"))
    );

    let (status, body) = stage.reward(&trial, json!({"reward": 1.0})).await;
    assert!(status == 409 && message(&body).contains("reward_deadline passed"), "{body}");
    assert_eq!(stage.reward(&in_time, json!({"reward": 1.0})).await.0, 200);
    let stage = stage.restarted().await;
    let (status, body) = stage.reward(&trial, json!({"reward": 1.0})).await;
    assert!(status == 409 && message(&body).contains("reward_deadline passed"), "{body}");
    let rewards: Vec<_> = stage.feed("").await.iter().map(|line| line.reward).collect();
    assert_eq!(rewards, [None, Some(1.0)]);
}

#[tokio::test]
async fn the_deadline_goes_on_while_no_proxy_runs() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({"reward_deadline": 0.5})).await;
    let sealed_at = stage.seal(&trial).await.sealed_at.unwrap();
    let due_at = sealed_at + jiff::SignedDuration::from_millis(500);
    let Stage { proxy, data, http, upstream } = stage;
    proxy.shutdown(limit(5)).await.unwrap();
    eventually("its time is over", async || jiff::Timestamp::now() > due_at).await;

    let url = format!("http://{}", upstream.addr());
    let proxy = rolltap_proxy::start(crate::harness::settings(&url, &data)).await.unwrap();
    let stage = Stage { upstream, proxy, data, http };
    let (status, body) = stage.reward(&trial, json!({"reward": 1.0})).await;
    assert!(status == 409 && message(&body).contains("reward_deadline passed"), "{body}");
    let lines = stage.feed("?wait=30").await;
    assert_eq!((lines.len(), lines[0].failure_cause.as_deref()), (1, Some("reward_deadline")));
}

#[tokio::test]
async fn what_is_no_length_of_time_is_refused_by_name() {
    let stage = Stage::random().await;
    for (field, bad) in
        [("reward_deadline", json!(-1)), ("reward_deadline", json!("1s")), ("group_deadline", json!(1e99))]
    {
        let (status, body) = stage.try_open(json!({"task_id": "t", "group_id": "g", field: bad})).await;
        assert_eq!(status, 422, "{body}");
        assert!(message(&body).contains(field), "{body}");
    }
}

#[tokio::test]
async fn reasons_for_suspicion_are_in_rows_feed_and_status_and_change_no_reward() {
    let stage = Stage::random().await;
    let [clean, caught, unexamined] =
        [stage.open(json!({})).await, stage.open(json!({})).await, stage.open(json!({})).await];
    let reasons = Some(vec!["reward_file_written".to_owned()]);
    let bodies = [json!([]), json!(reasons), Value::Null];
    for (trial, reasons) in [&clean, &caught, &unexamined].into_iter().zip(bodies) {
        stage.chat(trial, &request(json!({}))).await;
        stage.seal(trial).await;
        let (status, body) = stage.reward(trial, json!({"reward": 1.0, "suspicious": reasons})).await;
        assert_eq!((status, &body["suspicious"], &body["reward_valid"]), (200, &reasons, &json!(true)));
    }
    let stage = stage.restarted().await;
    let lines = stage.feed("").await;
    let found: Vec<_> = lines.iter().map(|line| (line.suspicious.clone(), line.reward)).collect();
    assert_eq!(found, [(Some(vec![]), Some(1.0)), (reasons.clone(), Some(1.0)), (None, Some(1.0))]);
    assert_eq!(stage.rollout(&caught).await[0].suspicious, reasons);
    assert_eq!(stage.rollout(&unexamined).await[0].suspicious, None);
    let (status, other) = stage.reward(&clean, json!({"reward": 1.0, "suspicious": reasons})).await;
    assert!(status == 409 && message(&other).contains("another reward already"), "{other}");
}

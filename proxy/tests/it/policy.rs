//! Policy versions on tokens, and the gate around weight updates.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::StatusCode;
use rolltap_proxy::api::{PolicyStatus, TrialOpened};
use rolltap_proxy::store::Archive;
use rolltap_proxy::{PoolSettings, Settings};
use rolltap_rollout::call::{Call, CallStatus};
use rolltap_rollout::check::{Captured, Options, check_trial};
use rolltap_sim as sim;
use rolltap_testing::{eventually, limit};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Stage, request, settings};

/// Returns a stage whose upstream delays each token.
async fn slow() -> Stage {
    let upstream = sim::Settings { token_delay: Duration::from_millis(30), ..sim::Settings::default() };
    let (upstream, data) = (sim::start(upstream).await.unwrap(), TempDir::new().unwrap());
    let proxy = rolltap_proxy::start(checking_often(&upstream, &data)).await.unwrap();
    Stage { upstream, proxy, data, http: rolltap_testing::http_client() }
}

fn checking_often(upstream: &sim::RunningSim, data: &TempDir) -> Settings {
    let pool = PoolSettings { check_every: Duration::from_millis(20), ..PoolSettings::default() };
    Settings { pool, ..settings(&format!("http://{}", upstream.addr()), data) }
}

async fn status(stage: &Stage) -> PolicyStatus {
    stage.http.get(stage.admin("/v1/policy")).send().await.unwrap().json().await.unwrap()
}

async fn post(stage: &Stage, path: &str, body: Value) -> PolicyStatus {
    let response = stage.http.post(stage.admin(path)).json(&body).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    response.json().await.unwrap()
}

async fn set(stage: &Stage, version: Value) -> i32 {
    post(stage, "/v1/policy", json!({"version": version})).await.current.version
}

async fn only_call(stage: &Stage, trial: &TrialOpened) -> Call {
    eventually("the call is recorded", async || stage.calls(trial).await.len() == 1).await;
    stage.calls(trial).await.remove(0)
}

#[tokio::test]
async fn versions_are_ordinals_of_labels_and_outlive_the_process() {
    let stage = slow().await;
    assert_eq!(status(&stage).await.current.version, 0);
    assert_eq!(set(&stage, json!(17)).await, 1);
    assert_eq!(set(&stage, json!("step-18")).await, 2);
    assert_eq!(set(&stage, json!("17")).await, 1);
    assert_eq!(set(&stage, json!("step-18")).await, 2);
    let Stage { proxy, data, upstream, http } = stage;
    proxy.shutdown(limit(5)).await.unwrap();
    let proxy = rolltap_proxy::start(checking_often(&upstream, &data)).await.unwrap();
    let stage = Stage { proxy, data, upstream, http };
    assert_eq!(status(&stage).await.current.label.as_deref(), Some("step-18"));
    let trial = stage.open(json!({})).await;
    stage.chat(&trial, &request(json!({"max_tokens": 2}))).await;
    assert_eq!(only_call(&stage, &trial).await.policy_version, 2);
    assert_eq!(set(&stage, json!("step-19")).await, 3);
    for body in [json!({}), json!({"version": 1.5}), json!({"version": ""})] {
        let response = stage.http.post(stage.admin("/v1/policy")).json(&body).send().await.unwrap();
        assert!(response.status().is_client_error(), "{body}");
    }
}

#[tokio::test]
async fn a_stream_that_straddles_versions_has_both_on_its_tokens() {
    let stage = slow().await;
    set(&stage, json!("a")).await;
    let trial = stage.open(json!({})).await;
    let mut response = stage.chat(&trial, &request(json!({"stream": true, "max_tokens": 24}))).await;
    for _ in 0..4 {
        response.chunk().await.unwrap().unwrap();
    }
    set(&stage, json!("b")).await;
    response.bytes().await.unwrap();
    let call = only_call(&stage, &trial).await;
    assert!(call.straddles_versions && call.policy_version == 1);
    assert_eq!(call.version_labels, [(1, "a".to_owned()), (2, "b".to_owned())].into());
    let [span] = call.choices[0].versions[..] else { panic!("{:?}", call.choices[0].versions) };
    assert_eq!(span.version, 2);
    assert!(span.start > 0 && (span.start as usize) < call.choices[0].token_ids.len());

    let status = stage.seal(&trial).await;
    let rows = stage.rollout(&trial).await;
    let versions = rows[0].token_version.iter();
    let sampled: Vec<_> = versions.zip(&rows[0].sampled_mask).filter(|(_, s)| **s == 1).collect();
    let of_a = sampled.iter().filter(|(version, _)| **version == 1).count();
    assert_eq!((of_a, sampled.len()), (span.start as usize, call.choices[0].token_ids.len()));
    assert_eq!(rows[0].version_labels["2"], "b");
    let captured = Captured::new([&call]);
    assert_eq!(check_trial(&status.trial_id, &rows, Some(&captured), Options::default()), []);
}

#[tokio::test]
async fn a_whole_answer_that_straddles_versions_is_marked_and_not_guessed_at() {
    let stage = slow().await;
    let trial = stage.open(json!({})).await;
    let body = request(json!({"max_tokens": 24}));
    let (response, ()) = tokio::join!(stage.chat(&trial, &body), async {
        eventually("the call is under way", async || status(&stage).await.in_flight == 1).await;
        set(&stage, json!("b")).await;
    });
    assert_eq!(response.status(), StatusCode::OK);
    let call = only_call(&stage, &trial).await;
    assert!(call.straddles_versions && call.is_trainable());
    assert_eq!((call.policy_version, &call.choices[0].versions[..]), (0, &[][..]));
}

#[tokio::test]
async fn the_weights_that_upstream_reports_are_learnt() {
    let stage = slow().await;
    stage.upstream.set_weights(Some("default"));
    // The first check found no such path, and the proxy does not check again for a while. A second proxy starts anew.
    let data = TempDir::new().unwrap();
    let proxy = rolltap_proxy::start(checking_often(&stage.upstream, &data)).await.unwrap();
    let stage = Stage { proxy, data, ..stage };
    eventually("the label is learnt", async || status(&stage).await.current.label.is_some()).await;
    assert_eq!(status(&stage).await.current.version, 0);
    stage.upstream.set_weights(Some("step-1"));
    eventually("the change is learnt", async || status(&stage).await.current.version == 1).await;
    assert_eq!(status(&stage).await.current.label.as_deref(), Some("step-1"));
    let trial = stage.open(json!({})).await;
    stage.chat(&trial, &request(json!({"max_tokens": 2}))).await;
    let call = only_call(&stage, &trial).await;
    assert_eq!(call.version_labels, [(1, "step-1".to_owned())].into());
}

/// Captures the lines that are logged on this thread while the guard lives.
fn logged() -> (Arc<Mutex<Vec<u8>>>, tracing::subscriber::DefaultGuard) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let writer = Arc::clone(&lines);
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || Lines(Arc::clone(&writer))).finish();
    (lines, tracing::subscriber::set_default(subscriber))
}

struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Only the trainer knows whether the weights are new, because a crashed server restarts with its earlier weights.
#[tokio::test]
async fn an_upstream_that_was_away_and_names_its_weights_as_before_is_warned_of() {
    let (lines, _guard) = logged();
    let log = || String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    let stage = slow().await;
    stage.upstream.set_weights(Some("default"));
    let data = TempDir::new().unwrap();
    let proxy = rolltap_proxy::start(checking_often(&stage.upstream, &data)).await.unwrap();
    let stage = Stage { proxy, data, ..stage };
    eventually("the label is learnt", async || status(&stage).await.current.label.is_some()).await;
    let warning = "names its weights as it did before";
    assert!(!log().contains(warning), "{}", log());
    stage.upstream.set_ill(true);
    eventually("it is out", async || log().contains("gets no calls until it is back")).await;
    stage.upstream.set_ill(false);
    eventually("the operator is warned", async || log().contains(warning)).await;
    assert_eq!(status(&stage).await.current.version, 0);
}

#[tokio::test]
async fn a_pause_holds_new_calls_and_lets_them_go() {
    let stage = slow().await;
    let trial = stage.open(json!({})).await;
    assert!(post(&stage, "/v1/policy/pause", json!({"mode": "hold"})).await.paused);
    let body = request(json!({"max_tokens": 2}));
    let (response, ()) = tokio::join!(stage.chat(&trial, &body), async {
        eventually("the call is held", async || status(&stage).await.held == 1).await;
        assert_eq!(stage.upstream.stats().requests, 0);
        set(&stage, json!("new")).await;
        assert!(!post(&stage, "/v1/policy/resume", json!({})).await.paused);
    });
    assert_eq!(response.status(), StatusCode::OK);
    let call = only_call(&stage, &trial).await;
    assert_eq!((call.policy_version, call.straddles_versions), (1, false));
    let ended = async || {
        let archive = Archive::open(stage.data.path()).unwrap();
        matches!(archive.pauses(), [pause] if pause.ended_at.is_some_and(|end| end >= pause.began_at))
    };
    eventually("the captures have the pause", ended).await;
    let drop_them = stage.http.post(stage.admin("/v1/policy/pause")).json(&json!({"mode": "drop"}));
    assert!(drop_them.send().await.unwrap().status().is_client_error());
}

#[tokio::test]
async fn a_pause_can_wait_for_the_calls_under_way() {
    let stage = slow().await;
    let trial = stage.open(json!({})).await;
    let mut response = stage.chat(&trial, &request(json!({"stream": true}))).await;
    response.chunk().await.unwrap().unwrap();
    let (paused, rest) =
        tokio::join!(post(&stage, "/v1/policy/pause", json!({"wait": true})), response.bytes());
    assert!(rest.unwrap().ends_with(b"data: [DONE]\n\n"));
    assert_eq!((paused.paused, paused.in_flight), (true, 0));
}

#[tokio::test]
async fn a_held_call_ends_with_its_trial() {
    let stage = slow().await;
    let trial = stage.open(json!({})).await;
    let response = stage.http.post(stage.admin("/v1/policy/pause")).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "without a body");
    let body = request(json!({}));
    let (response, _) = tokio::join!(stage.chat(&trial, &body), async {
        eventually("the call is held", async || status(&stage).await.held == 1).await;
        stage.seal(&trial).await
    });
    assert_eq!(response.status(), StatusCode::GONE);
    assert_eq!(only_call(&stage, &trial).await.status, CallStatus::Cancelled);
    eventually("nothing is held", async || status(&stage).await.held == 0).await;
}

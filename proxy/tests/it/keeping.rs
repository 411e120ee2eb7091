//! What was acknowledged is on disk, and a new process goes on from there.

use std::io::Write;
use std::time::Duration;

use rolltap_proxy::StartError;
use serde_json::{Value, json};

use crate::stage::{self, Stage, request};

#[tokio::test]
async fn the_record_is_kept_before_the_agent_sees_the_end() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    for turn in 1..=20 {
        let body = request(json!({"stream": turn % 2 == 0}));
        stage.chat(&trial, &body).await.text().await.unwrap();
        let stored = rolltap_proxy::store::read_dir(stage.data.path()).unwrap();
        assert_eq!(stored.trials[0].calls.len(), turn, "on disk");
        assert_eq!(stage.calls(&trial).await.len(), turn, "and told");
    }
}

#[tokio::test]
async fn an_open_trial_goes_on_in_the_next_process_and_a_sealed_one_stays_sealed() {
    let before = Stage::random().await;
    let (open, sealed) = (before.open(json!({})).await, before.open(json!({})).await);
    before.chat(&open, &request(json!({}))).await;
    before.seal(&sealed).await;
    let (status, calls) = (before.status(&open).await, before.calls(&open).await);
    let Stage { proxy, data, http, upstream } = before;
    proxy.shutdown(Duration::from_secs(5)).await.unwrap();
    torn_end(&data);

    let proxy =
        rolltap_proxy::start(stage::settings(&format!("http://{}", upstream.addr()), &data)).await.unwrap();
    let after = Stage { upstream, proxy, data, http };
    assert_eq!((after.status(&open).await, after.calls(&open).await), (status, calls));
    let call = async |key: &str| {
        let call =
            after.http.post(after.agent("/v1/chat/completions")).bearer_auth(key).json(&request(json!({})));
        call.send().await.unwrap().status().as_u16()
    };
    assert_eq!((call(&open.key).await, call(&sealed.key).await), (200, 410));
    let stored = rolltap_proxy::store::read_dir(after.data.path()).unwrap();
    assert_eq!((stored.trials[0].calls.len(), stored.damage.len()), (2, 0));
}

/// What a process leaves that dies while it writes.
fn torn_end(data: &tempfile::TempDir) {
    let path = data.path().join("capture.rolltap");
    std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(&[9, 0, 0]).unwrap();
}

#[tokio::test]
async fn damage_in_the_middle_is_named_and_not_started_over() {
    let stage = Stage::random().await;
    stage.open(json!({})).await;
    let Stage { proxy, data, upstream, .. } = stage;
    proxy.shutdown(Duration::from_secs(5)).await.unwrap();
    let path = data.path().join("capture.rolltap");
    let events = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&events, &b"garbage and more garbage"[..], &events[8..]].concat()).unwrap();
    let error = rolltap_proxy::start(stage::settings(&format!("http://{}", upstream.addr()), &data))
        .await
        .unwrap_err();
    let StartError::Damaged { damage, .. } = &error else { panic!("{error}") };
    assert!(damage.contains(&format!("capture.rolltap at byte {}", events.len())), "{damage}");
}

#[tokio::test]
async fn the_stores_file_holds_no_key() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    let answer: Value = stage.chat(&trial, &request(json!({}))).await.json().await.unwrap();
    assert!(answer["id"].is_string());
    let kept = std::fs::read(stage.data.path().join("capture.rolltap")).unwrap();
    let holds = |text: &str| kept.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("chat_completions") && !holds(&trial.key) && !holds(&trial.key[20..40]));
}

//! Acknowledged records are on disk, and a new process resumes from them.

use std::io::Write;

use rolltap_proxy::StartError;
use rolltap_proxy::api::TrialOpened;
use rolltap_proxy::store::StoreError;
use rolltap_rollout::call::CallStatus;
use rolltap_testing::limit;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{self, Stage, request};
use crate::raw_upstream::{RawUpstream, Script, Then};

#[tokio::test]
async fn the_record_is_stored_before_the_agent_sees_the_end() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    for turn in 1..=20 {
        let body = request(json!({"stream": turn % 2 == 0}));
        stage.chat(&trial, &body).await.text().await.unwrap();
        let stored = rolltap_proxy::store::read_dir(stage.data.path()).unwrap();
        assert_eq!(stored.trials[0].calls.len(), turn, "on disk");
        assert_eq!(stage.calls(&trial).await.len(), turn, "and returned");
    }
}

#[tokio::test]
async fn a_call_that_upstream_got_is_known_after_a_crash() {
    let silent = Script { pieces: Vec::new(), then: Then::Hang };
    let upstream = RawUpstream::start(vec![silent; 20]).await;
    let stage = Stage::before(harness::simulator(None).await, &upstream.url).await;
    for calls in 1..=20 {
        let trial = stage.open(json!({})).await;
        let body = request(json!({"stream": calls % 2 == 0}));
        let copy = tokio::select! {
            _ = stage.chat(&trial, &body) => panic!("upstream never answers"),
            copy = async {
                // A pause here would hide an intent that is written a little later.
                while upstream.heard().len() < calls {
                    tokio::task::yield_now().await;
                }
                copied(&stage.data)
            } => copy,
        };
        assert_eq!(calls_after_a_crash(&copy, &trial).await, [CallStatus::Interrupted]);
    }
}

/// Returns a copy of the captures, as a crash at this moment leaves them.
fn copied(data: &TempDir) -> TempDir {
    let copy = TempDir::new().unwrap();
    std::fs::copy(segment(data), segment(&copy)).unwrap();
    copy
}

/// Starts a proxy on the captures, and returns the statuses of a trial's calls.
async fn calls_after_a_crash(data: &TempDir, trial: &TrialOpened) -> Vec<CallStatus> {
    let proxy = rolltap_proxy::start(harness::settings("http://127.0.0.1:1", data)).await.unwrap();
    proxy.shutdown(limit(5)).await.unwrap();
    let stored = rolltap_proxy::store::read_dir(data.path()).unwrap();
    let stored = stored.trials.iter().find(|stored| stored.facts().trial_id == trial.trial_id);
    stored.unwrap().calls.iter().map(|call| call.status).collect()
}

#[tokio::test]
async fn an_open_trial_goes_on_in_the_next_process_and_a_sealed_one_stays_sealed() {
    let before = Stage::random().await;
    let (open, sealed) = (before.open(json!({})).await, before.open(json!({})).await);
    before.chat(&open, &request(json!({}))).await;
    before.seal(&sealed).await;
    let (status, calls) = (before.status(&open).await, before.calls(&open).await);
    let Stage { proxy, data, http, upstream } = before;
    proxy.shutdown(limit(5)).await.unwrap();
    torn_end(&data);

    let proxy =
        rolltap_proxy::start(harness::settings(&format!("http://{}", upstream.addr()), &data)).await.unwrap();
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

/// Returns the path of the only segment.
fn segment(data: &TempDir) -> std::path::PathBuf {
    data.path().join("capture-00000001.rolltap")
}

/// Appends the partial record of a process that dies while it writes.
fn torn_end(data: &TempDir) {
    let path = segment(data);
    std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(&[9, 0, 0]).unwrap();
}

#[tokio::test]
async fn damage_in_the_middle_is_named_and_gone_on_from() {
    let stage = Stage::random().await;
    let before = stage.open(json!({})).await;
    let Stage { proxy, data, upstream, http } = stage;
    proxy.shutdown(limit(5)).await.unwrap();
    let path = segment(&data);
    let length = std::fs::metadata(&path).unwrap().len();
    std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(b"garbage and more garbage")
        .unwrap();
    // A valid record after the garbage distinguishes it from a torn end.
    let sound = std::fs::read(&path).unwrap();
    let first_record = &sound[8..usize::try_from(length).unwrap()];
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(first_record).unwrap();
    let proxy =
        rolltap_proxy::start(harness::settings(&format!("http://{}", upstream.addr()), &data)).await.unwrap();
    let after = Stage { proxy, data, upstream, http };
    let behind = after.open(json!({})).await;
    for trial in [&before, &behind] {
        assert_eq!(after.chat(&after.here(trial), &request(json!({}))).await.status(), 200);
    }
    let stored = rolltap_proxy::store::read_dir(after.data.path()).unwrap();
    let [damage] = stored.damage.as_slice() else { panic!("{:?}", stored.damage) };
    assert_eq!((&damage.path, damage.at, damage.is_torn_end), (&path, length, false));
    assert_eq!(stored.trials.iter().map(|trial| trial.calls.len()).collect::<Vec<_>>(), [1, 1]);
}

#[tokio::test]
async fn two_proxies_on_one_directory_are_one_too_many() {
    let stage = Stage::random().await;
    let settings = harness::settings("http://127.0.0.1:1", &stage.data);
    let error = rolltap_proxy::start(settings).await.unwrap_err();
    let StartError::Store(StoreError::InUse { by, .. }) = &error else { panic!("{error}") };
    assert!(by.contains(&std::process::id().to_string()), "{error}");
    let trial = stage.open(json!({})).await;
    assert_eq!(stage.chat(&trial, &request(json!({}))).await.status(), 200, "the first keeps serving");
}

#[tokio::test]
async fn the_stores_file_holds_no_key() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    let answer: Value = stage.chat(&trial, &request(json!({}))).await.json().await.unwrap();
    assert!(answer["id"].is_string());
    let stored = rolltap_proxy::store::read_dir(stage.data.path()).unwrap();
    let (facts, call) = (stored.trials[0].facts(), &stored.trials[0].calls[0]);
    let readable = format!("{facts:?} {call:?} {:?}", stored.trials[0].told);
    let kept = std::fs::read(segment(&stage.data)).unwrap();
    let holds = |text: &str| {
        readable.contains(text) || kept.windows(text.len()).any(|window| window == text.as_bytes())
    };
    assert!(holds(call.call_id.as_str()) && !holds(&trial.key) && !holds(&trial.key[20..40]));
}

//! Tests the store on a real disk.

mod following;
mod group_commit;
mod notes;

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use jiff::Timestamp;
use proptest::prelude::*;
use rolltap_rollout::call::{Call, CallStatus, Choice};
use rolltap_rollout::ids::{CallId, TaskId, TrialId};
use rolltap_rollout::token::{Logprob, TokenId};
use serde_json::json;

use super::format::segment::{self, SegmentId};
use super::*;
use crate::trial::Trial;

fn ids(ids: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
    ids.into_iter().map(|id| TokenId::try_from(id).unwrap()).collect()
}

fn opened(name: &str) -> Event {
    let opened = json!({
        "facts": {
            "trial_id": name, "task_id": TaskId::new("t").unwrap(), "group_id": null, "group_size": null, "sample_index": 0,
            "attempt": 0, "agent": null, "environment": null, "model": null, "logprobs_mode": "raw_logprobs",
            "tokenizer_hash": null, "vocab_size": null, "training": {},
        },
        "key": vec![name.len(); 32], "sampling": {}, "limits": {}, "metadata": {}, "at": Timestamp::UNIX_EPOCH,
    });
    Event::Opened(Box::new(serde_json::from_value(opened).unwrap()))
}

/// Returns the turns of one conversation. Each turn extends the previous one.
fn conversation(trial: &str, turns: usize) -> Vec<CallEntry> {
    let mut calls: Vec<CallEntry> = Vec::new();
    for turn in 0..turns as u32 {
        let mut call =
            Call::begun(CallId::generate(), TrialId::new(trial).unwrap(), 0, Timestamp::UNIX_EPOCH);
        call.status = CallStatus::Complete;
        let mut messages: Vec<Arc<str>> =
            vec![format!("{{\"role\":\"system\",\"content\":\"{}\"}}", "You. ".repeat(400)).into()];
        call.prompt_token_ids = ids(0..2000).into();
        if let Some(CallEntry { call: before, told: Some(told) }) = calls.last() {
            messages = told.messages.iter().cloned().chain([Arc::clone(&told.answers[0].1)]).collect();
            call.prompt_token_ids = before.prompt_token_ids.clone();
            call.prompt_token_ids.extend_from_slice(&before.choices[0].token_ids);
        }
        messages.push(format!("{{\"role\":\"user\",\"content\":\"{turn}\"}}").into());
        call.prompt_token_ids.extend_from_slice(&ids([turn; 9]));
        let logprobs = (0..50).map(|n| Logprob::try_from(-1.0 / (n as f32 + 1.5)).ok()).collect();
        call.choices = vec![Choice { token_ids: ids(turn..turn + 50), logprobs, ..Choice::default() }];
        let told = StoredConversation {
            maker: PromptMaker::Proxy,
            messages,
            inputs: json!({"model": "m", "tools": "x".repeat(900)}).to_string().into(),
            answers: vec![(0, json!({"role": "assistant", "content": turn}).to_string().into())],
        };
        calls.push(CallEntry { call: Arc::new(call), told: Some(Arc::new(told)) });
    }
    calls
}

async fn keep_all(store: &Store, calls: &[CallEntry]) {
    for kept in calls {
        store.append(Event::Call(kept.clone())).await.unwrap();
    }
}

fn assert_has(dir: &Path, trial: &str, calls: &[CallEntry]) {
    let archive = Archive::open(dir).unwrap();
    assert!(archive.damage().is_empty(), "{:?}", archive.damage());
    let (stored, damage) = archive.trial(&TrialId::new(trial).unwrap()).unwrap();
    assert!(damage.is_empty(), "{damage:?}");
    assert_eq!(stored.calls.len(), calls.len());
    for (at, kept) in calls.iter().enumerate() {
        assert_eq!((&stored.calls[at], &stored.told[at]), (&kept.call, &kept.told));
    }
}

#[tokio::test]
async fn conversations_are_stored_at_the_cost_of_their_new_parts() {
    for sync in [SyncPolicy::Always, SyncPolicy::Interval, SyncPolicy::Off] {
        let dir = tempfile::tempdir().unwrap();
        let opened_store =
            Store::open(dir.path(), StoreSettings { sync, ..StoreSettings::default() }).unwrap();
        let store = opened_store.store;
        let (one, other) = (conversation("one", 12), conversation("other", 3));
        for name in ["one", "other"] {
            store.append(opened(name)).await.unwrap();
        }
        keep_all(&store, &one).await;
        let before = SegmentId::NONE.next().path(dir.path()).metadata().unwrap().len();
        keep_all(&store, &other).await;
        let after = SegmentId::NONE.next().path(dir.path()).metadata().unwrap().len();
        assert!(before < 12 * 600 + 6000, "{before}");
        assert!(after - before < 3 * 600, "a trial that begins like another: {}", after - before);
        for (name, calls) in [("one", &one), ("other", &other)] {
            assert_has(dir.path(), name, calls);
            let read = store.calls(&TrialId::new(name).unwrap()).await;
            assert_eq!(read.len(), calls.len());
        }
        tokio::task::spawn_blocking(|| opened_store.thread.finish()).await.unwrap().unwrap();
        assert_has(dir.path(), "one", &one);
    }
}

/// Returns natural text, made of a few words.
fn words(seed: u32, count: usize) -> String {
    let all =
        ["let", "mut", "state", "self", "return", "error", "path", "into", "the", "of", "a", "file", "no"];
    let mut random = seed;
    let mut next = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        all[(random >> 16) as usize % all.len()]
    };
    (0..count).map(|_| next()).collect::<Vec<_>>().join(" ")
}

/// Returns calls of two trials in turn. Each extends some earlier call of its trial, with texts and answers of any
/// length.
fn tangled(plan: &[(usize, u32, usize)]) -> [Vec<CallEntry>; 2] {
    let mut trials = [Vec::<CallEntry>::new(), Vec::new()];
    for (turn, &(back, seed, length)) in plan.iter().enumerate() {
        let (trial, name) = (&mut trials[turn % 2], ["one", "other"][turn % 2]);
        let mut call = Call::begun(CallId::generate(), TrialId::new(name).unwrap(), 0, Timestamp::UNIX_EPOCH);
        call.status = CallStatus::Complete;
        let mut messages: Vec<Arc<str>> = Vec::new();
        if let Some(CallEntry { call: before, told: Some(told) }) = trial.iter().rev().nth(back) {
            messages = told.messages.iter().cloned().chain([Arc::clone(&told.answers[0].1)]).collect();
            call.prompt_token_ids = before.prompt_token_ids.clone();
            call.prompt_token_ids.extend_from_slice(&before.choices[0].token_ids);
        }
        messages.push(words(seed, length).into());
        call.prompt_token_ids.extend_from_slice(&ids((0..length as u32).map(|id| id * seed % 150_000)));
        let sampled = length as u32 / 3;
        let logprobs = (0..sampled).map(|n| Logprob::try_from(-1.0 / (n as f32 + 1.5)).ok()).collect();
        call.choices = vec![Choice { token_ids: ids(seed..seed + sampled), logprobs, ..Choice::default() }];
        let answers = vec![(0, words(seed / 2, length / 3).into())];
        let told = StoredConversation { maker: PromptMaker::Server, messages, inputs: "{}".into(), answers };
        trial.push(CallEntry { call: Arc::new(call), told: Some(Arc::new(told)) });
    }
    trials
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rolltap_testing::sample(12, 120)))]

    #[test]
    fn whatever_goes_on_from_whatever_is_read_as_it_was(
        plan in prop::collection::vec((0..4_usize, 1..1000_u32, 1..1500_usize), 1..70),
        segment in prop::sample::select(vec![30_000, 64 << 20]),
        naps in prop::collection::vec(0..90_usize, 0..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let opened_store = Store::with_segments_of(segment, dir.path(), StoreSettings::default()).unwrap();
            let store = opened_store.store;
            let trials = tangled(&plan);
            for name in ["one", "other"] {
                store.append(opened(name)).await.unwrap();
            }
            for turn in 0..plan.len() {
                let kept = trials[turn % 2][turn / 2].clone();
                let trial_id = kept.call.trial_id.clone();
                store.append(Event::Call(kept)).await.unwrap();
                if naps.contains(&turn) {
                    store.append(Event::Evicted { trial_id: trial_id.clone() }).await.unwrap();
                    let read = store.calls_to_go_on_from(&trial_id).await;
                    assert_eq!(read.len(), turn / 2 + 1);
                }
            }
            tokio::task::spawn_blocking(|| opened_store.thread.finish()).await.unwrap().unwrap();
            assert_has(dir.path(), "one", &trials[0]);
            assert_has(dir.path(), "other", &trials[1]);
        });
    }
}

#[tokio::test]
async fn each_segment_stands_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (mut all, calls) = (Vec::new(), conversation("one", 40));
    // A process ends in the middle, and the next one appends to the last segment.
    for (part, calls) in calls.chunks(20).enumerate() {
        let opened_store = Store::with_segments_of(4096, dir.path(), StoreSettings::default()).unwrap();
        assert_eq!(opened_store.trials.len(), part);
        if part == 0 {
            opened_store.store.append(opened("one")).await.unwrap();
        }
        keep_all(&opened_store.store, calls).await;
        all.extend_from_slice(calls);
        tokio::task::spawn_blocking(|| opened_store.thread.finish()).await.unwrap().unwrap();
        assert_has(dir.path(), "one", &all);
    }
    let segments = segment::list(dir.path()).unwrap();
    assert!(segments.len() > 3, "{segments:?}");
    // Without one segment, only the calls in that segment are lost.
    std::fs::remove_file(segments[1].path(dir.path())).unwrap();
    let stored = read_dir(dir.path()).unwrap();
    assert!(stored.damage.is_empty(), "{:?}", stored.damage);
    assert!((20..40).contains(&stored.trials[0].calls.len()));
}

#[tokio::test]
async fn a_call_that_never_ended_is_interrupted_once() {
    let dir = tempfile::tempdir().unwrap();
    let intent = |call: &Call| Event::Intent {
        trial_id: call.trial_id.clone(),
        call_id: call.call_id.clone(),
        at: Timestamp::UNIX_EPOCH,
    };
    let calls = conversation("one", 2);
    let opened_store = Store::open(dir.path(), StoreSettings::default()).unwrap();
    opened_store.store.append(opened("one")).await.unwrap();
    for kept in &calls {
        opened_store.store.append(intent(&kept.call)).await.unwrap();
    }
    keep_all(&opened_store.store, &calls[..1]).await;
    tokio::task::spawn_blocking(|| opened_store.thread.finish()).await.unwrap().unwrap();
    for _ in 0..2 {
        let mut opened_store = Store::open(dir.path(), StoreSettings::default()).unwrap();
        opened_store.note_interrupted().await.unwrap();
        tokio::task::spawn_blocking(|| opened_store.thread.finish()).await.unwrap().unwrap();
        let trial = read_dir(dir.path()).unwrap().trials.remove(0);
        let told: Vec<_> = trial.calls.iter().map(|call| (&call.call_id, call.status)).collect();
        let expected = [
            (&calls[0].call.call_id, CallStatus::Complete),
            (&calls[1].call.call_id, CallStatus::Interrupted),
        ];
        assert_eq!(told, expected);
    }
}

/// Returns a directory with the file of an earlier version, and its calls as that version returned them.
fn of_version(file: &str, fixture: &str, calls: &str) -> (tempfile::TempDir, Vec<Call>) {
    let dir = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store");
    std::fs::copy(fixtures.join(fixture), dir.path().join(file)).unwrap();
    (dir, serde_json::from_str(&std::fs::read_to_string(fixtures.join(calls)).unwrap()).unwrap())
}

/// Version 1 had one file and no conversations. Version 2 had neither remembered words nor separate logprobs.
#[tokio::test]
async fn earlier_formats_are_read_and_gone_on_from() {
    for (dir, expected) in [
        of_version("capture.rolltap", "capture-v1.rolltap", "calls-v1.json"),
        of_version("capture-00000001.rolltap", "capture-v2.rolltap", "calls-v2.json"),
    ] {
        let opened_store = Store::open(dir.path(), StoreSettings::default()).unwrap();
        let trial = opened_store.trials[0].opened.facts.trial_id.clone();
        let before = opened_store.store.calls(&trial).await;
        let calls: Vec<_> = before.iter().map(|kept| kept.call.as_ref()).collect();
        assert_eq!(calls, expected.iter().collect::<Vec<_>>());
        let new = conversation(trial.as_str(), 2);
        keep_all(&opened_store.store, &new).await;
        tokio::task::spawn_blocking(|| opened_store.thread.finish()).await.unwrap().unwrap();
        let files = segment::list(dir.path()).unwrap();
        assert_eq!(files.len(), 2, "nothing is added to a file of another format: {files:?}");
        assert_has(dir.path(), trial.as_str(), &[before, new].concat());
    }
}

#[tokio::test]
async fn trials_go_when_their_retention_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let settings = |max_age: Option<u64>| StoreSettings {
        retention: Retention { max_age: max_age.map(std::time::Duration::from_secs), max_bytes: None },
        ..StoreSettings::default()
    };
    let calls = ["one", "two", "three"].map(|name| conversation(name, 20));
    let mut opened_store = Store::with_segments_of(4096, dir.path(), settings(Some(60))).unwrap();
    let store = &opened_store.store;
    for (name, calls) in ["one", "two", "three"].into_iter().zip(&calls) {
        store.append(opened(name)).await.unwrap();
        keep_all(store, calls).await;
        let change = |version| PolicyChange {
            version,
            label: name.to_owned(),
            is_set: true,
            at: Timestamp::UNIX_EPOCH,
        };
        store.append(Event::Policy(change(name.len() as i32 - 2))).await.unwrap();
        if name != "two" {
            let (trial_id, at) = (TrialId::new(name).unwrap(), Timestamp::UNIX_EPOCH);
            store.append(Event::Sealed { trial_id, at }).await.unwrap();
        }
    }
    let fourth = conversation("four", 20);
    store.append(opened("four")).await.unwrap();
    keep_all(store, &fourth).await;
    let gone = opened_store.forgotten.recv().await.unwrap();
    assert_eq!(gone.trials, [TrialId::new("one").unwrap()]);
    let gone = opened_store.forgotten.recv().await.unwrap();
    assert_eq!(gone.trials, [TrialId::new("three").unwrap()]);
    tokio::task::spawn_blocking(|| opened_store.thread.finish()).await.unwrap().unwrap();

    let archive = Archive::open(dir.path()).unwrap();
    assert!(archive.damage().is_empty(), "{:?}", archive.damage());
    assert_eq!(archive.len(), 2);
    assert_has(dir.path(), "two", &calls[1]);
    assert_has(dir.path(), "four", &fourth);
    let opened_store = Store::open(dir.path(), settings(None)).unwrap();
    assert_eq!(
        opened_store.policy.iter().map(|change| &*change.label).collect::<Vec<_>>(),
        ["one", "two", "three"]
    );
}

#[tokio::test]
async fn as_many_calls_as_there_are_permits_get_both_of_their_places() {
    let dir = tempfile::tempdir().unwrap();
    let opened = Store::open(dir.path(), StoreSettings::default()).unwrap();
    let mut calls = Vec::new();
    for _ in 0..CALLS {
        calls.push(opened.store.reserve_call().await.unwrap());
    }
    let mut next = std::pin::pin!(opened.store.reserve_call());
    assert!(next.as_mut().now_or_never().is_none());
    // Other events do not wait for the end of calls.
    opened.store.append(self::opened("a")).await.unwrap();
    calls.pop();
    next.await.unwrap();
    drop(calls);
}

#[tokio::test]
async fn a_trial_whose_opening_is_withdrawn_is_not_there_and_its_name_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let first = Store::open(dir.path(), StoreSettings::default()).unwrap();
    let trial_id = TrialId::new("one").unwrap();
    for event in [opened("one"), Event::Withdrawn { trial_id: trial_id.clone() }, opened("gone")] {
        first.store.append(event).await.unwrap();
    }
    first.store.append(Event::Withdrawn { trial_id: TrialId::new("gone").unwrap() }).await.unwrap();
    let Event::Opened(mut again) = opened("one") else { panic!("it is an opening") };
    again.metadata.insert("again".to_owned(), true.into());
    first.store.append(Event::Opened(again)).await.unwrap();
    let calls = conversation("one", 2);
    keep_all(&first.store, &calls).await;
    tokio::task::spawn_blocking(|| first.thread.finish()).await.unwrap().unwrap();

    let archive = Archive::open(dir.path()).unwrap();
    assert!(archive.damage().is_empty(), "{:?}", archive.damage());
    let second = Store::open(dir.path(), StoreSettings::default()).unwrap();
    let [found] = &second.trials[..] else { panic!("one trial: {:?}", second.trials) };
    assert!(found.opened.metadata.contains_key("again"));
    assert_has(dir.path(), "one", &calls);
}

#[tokio::test]
async fn an_answer_that_was_not_delivered_is_failed_for_every_reader() {
    let dir = tempfile::tempdir().unwrap();
    let first = Store::open(dir.path(), StoreSettings::default()).unwrap();
    let (Event::Opened(one), calls) = (opened("one"), conversation("one", 2)) else { panic!("an opening") };
    let trial = Trial::new(*one.clone());
    first.store.append(Event::Opened(one)).await.unwrap();
    keep_all(&first.store, &calls).await;
    let Call { trial_id, call_id, .. } = (*calls[0].call).clone();
    first.store.append(Event::Undelivered { trial_id: trial_id.clone(), call_id }).await.unwrap();

    // The calls are only in the store when their trial learns of it.
    trial.rest();
    trial.undelivered_calls(&[Arc::clone(&calls[0].call)]);
    let expected = [CallStatus::Failed, CallStatus::Complete];
    let statuses = |calls: &[Arc<Call>]| calls.iter().map(|call| call.status).collect::<Vec<_>>();
    assert_eq!(statuses(&trial.calls(&first.store).await), expected);
    assert_eq!(trial.summary(&first.store).await.complete, 1);
    tokio::task::spawn_blocking(|| first.thread.finish()).await.unwrap().unwrap();

    let stored = read_dir(dir.path()).unwrap();
    let read: Vec<_> = stored.trials[0].calls.iter().map(|call| call.status).collect();
    assert_eq!(read, expected);
    let second = Store::open(dir.path(), StoreSettings::default()).unwrap();
    let read: Vec<_> = second.store.calls(&trial_id).await.iter().map(|kept| kept.call.status).collect();
    assert_eq!(read, expected);
}

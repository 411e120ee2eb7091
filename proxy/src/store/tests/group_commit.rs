//! Tests which batches the gathering task writes itself, and that no event overtakes an earlier one.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_event_overtakes_an_earlier_one_of_its_trial() {
    for sync in [SyncPolicy::Always, SyncPolicy::Interval, SyncPolicy::Off] {
        let dir = tempfile::tempdir().unwrap();
        let settings = StoreSettings { sync, ..StoreSettings::default() };
        let opened_store = Store::with_segments_of(100_000, dir.path(), settings).unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for trial in 0..8 {
            tasks.spawn(make_calls(opened_store.store.clone(), format!("t{trial}")));
        }
        let written = tasks.join_all().await;
        tokio::task::spawn_blocking(|| opened_store.thread.finish()).await.unwrap().unwrap();
        for (name, calls) in &written {
            assert_has(dir.path(), name, calls);
        }
        let again = Store::open(dir.path(), StoreSettings::default()).unwrap();
        assert!(again.unfinished.is_empty(), "{sync}: each record comes after its intent");
    }
}

/// Makes calls of a trial without a wait for their records. Some are too large for the gathering task.
async fn make_calls(store: Store, name: String) -> (String, Vec<CallEntry>) {
    store.append(opened(&name)).await.unwrap();
    let mut calls = conversation(&name, 30);
    calls.iter_mut().step_by(3).for_each(lengthen);
    let mut written = Vec::new();
    for kept in &calls {
        let Call { trial_id, call_id, .. } = (*kept.call).clone();
        let CallSlots { intent, record } = store.reserve_call().await.unwrap();
        written.push(intent.append(Event::Intent { trial_id, call_id, at: Timestamp::UNIX_EPOCH }));
        written.push(record.append(Event::Call(kept.clone())));
        tokio::task::yield_now().await;
    }
    for written in written {
        outcome(written.await).unwrap();
    }
    (name, calls)
}

/// Replaces a call by one with a long prompt and without its conversation.
fn lengthen(kept: &mut CallEntry) {
    let mut call = (*kept.call).clone();
    call.prompt_token_ids = ids(0..20_000).into();
    *kept = CallEntry { call: Arc::new(call), told: None };
}

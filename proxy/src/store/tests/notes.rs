//! Tests of notes about calls, and of pauses.

use super::*;
use crate::store::read::index::Index;

fn note(trial: &str, call: &Call) -> Event {
    let kind = CallNoteKind::Audited { is_equal: false };
    let note = CallNote { call_id: call.call_id.clone(), kind, at: Timestamp::UNIX_EPOCH };
    Event::Noted { trial_id: TrialId::new(trial).unwrap(), note }
}

/// Returns the pauses in a directory.
fn pauses(dir: &Path) -> Vec<Pause> {
    let archive = Archive::open(dir).unwrap();
    assert!(archive.damage().is_empty(), "{:?}", archive.damage());
    archive.pauses().to_vec()
}

#[tokio::test]
async fn a_note_is_found_with_its_trial_and_an_unknown_trial_gets_none() {
    let dir = tempfile::tempdir().unwrap();
    let OpenedStore { store, thread, .. } = Store::open(dir.path(), StoreSettings::default()).unwrap();
    store.append(opened("one")).await.unwrap();
    let calls = conversation("one", 1);
    keep_all(&store, &calls).await;
    for _ in 0..2 {
        store.append(note("one", &calls[0].call)).await.unwrap();
        store.append(note("unknown", &calls[0].call)).await.unwrap();
    }
    tokio::task::spawn_blocking(|| thread.finish()).await.unwrap().unwrap();
    let archive = Archive::open(dir.path()).unwrap();
    assert!(archive.damage().is_empty(), "{:?}", archive.damage());
    let (trial, _) = archive.trial(&TrialId::new("one").unwrap()).unwrap();
    assert!(
        matches!(trial.notes(), [CallNote { kind: CallNoteKind::Audited { is_equal: false }, .. }]),
        "{:?}",
        trial.notes()
    );
    assert_eq!(archive.len(), 1);
}

#[test]
fn a_note_about_an_unknown_trial_writes_nothing() {
    let (mut index, mut out) = (Index::default(), Vec::new());
    let mut encoder = write::encoder::Encoder::new(SegmentId::NONE).unwrap();
    let calls = conversation("gone", 1);
    let event = note("gone", &calls[0].call);
    encoder.encode(&event, 0, &mut index, &mut out, &mut Default::default()).unwrap();
    assert!(out.is_empty() && index.number_of(&TrialId::new("gone").unwrap()) == Default::default());
}

#[tokio::test]
async fn a_pause_ends_with_the_restart_of_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let pause = Pause { began_at: Timestamp::UNIX_EPOCH, ended_at: None };
    let OpenedStore { store, thread, .. } = Store::open(dir.path(), StoreSettings::default()).unwrap();
    store.append(Event::Paused(pause)).await.unwrap();
    tokio::task::spawn_blocking(|| thread.finish()).await.unwrap().unwrap();
    assert_eq!(pauses(dir.path()), [pause]);
    for _ in 0..2 {
        let mut again = Store::open(dir.path(), StoreSettings::default()).unwrap();
        again.end_pause().await.unwrap();
        tokio::task::spawn_blocking(|| again.thread.finish()).await.unwrap().unwrap();
        let pauses = pauses(dir.path());
        let is_ended = |ended: &Pause| ended.began_at == pause.began_at && ended.ended_at.is_some();
        assert!(matches!(&*pauses, [ended] if is_ended(ended)), "{pauses:?}");
    }
}

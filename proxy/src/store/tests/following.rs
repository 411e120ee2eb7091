//! A follower of a data directory finds at every moment what a scan from the beginning finds.

use super::*;

/// Returns what a reader can see of an archive, as comparable texts.
fn content(archive: &Archive) -> Vec<String> {
    let trials = archive.trials().map(|(trial, damage)| format!("{trial:?} {damage:?}"));
    let outlines = archive.outlines().map(|outline| format!("{outline:?}"));
    let closed = archive.closed_groups().map(|group| format!("closed {group}"));
    trials.chain(outlines).chain(closed).chain([format!("{:?}", archive.damage())]).collect()
}

#[track_caller]
fn assert_follows(follower: &mut ArchiveFollower, dir: &Path) {
    assert_eq!(content(&follower.archive().unwrap()), content(&Archive::open(dir).unwrap()));
}

/// Writes two trials into segments of that many bytes. Returns their directory.
async fn written(segment: u64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let opened_store = Store::with_segments_of(segment, dir.path(), StoreSettings::default()).unwrap();
    for name in ["one", "other"] {
        opened_store.store.append(opened(name)).await.unwrap();
        keep_all(&opened_store.store, &conversation(name, 4)).await;
        let (trial_id, at) = (TrialId::new(name).unwrap(), Timestamp::UNIX_EPOCH);
        opened_store.store.append(Event::Sealed { trial_id, at }).await.unwrap();
    }
    tokio::task::spawn_blocking(|| opened_store.thread.finish()).await.unwrap().unwrap();
    dir
}

#[tokio::test]
async fn records_that_arrive_in_pieces_are_found_once_each() {
    for segment in [1500, u64::MAX] {
        let (whole, copy) = (written(segment).await, tempfile::tempdir().unwrap());
        let mut follower = ArchiveFollower::of(copy.path());
        assert!(follower.archive().unwrap().is_empty());
        for id in segment::list(whole.path()).unwrap() {
            let bytes = std::fs::read(id.path(whole.path())).unwrap();
            // The steps end within heads and within records.
            for length in (3..bytes.len()).step_by(97).chain([bytes.len()]) {
                std::fs::write(id.path(copy.path()), &bytes[..length]).unwrap();
                assert_follows(&mut follower, copy.path());
            }
        }
        assert!(follower.archive().unwrap().damage().is_empty());
        assert_eq!(follower.archive().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_directory_that_loses_segments_or_is_made_anew_is_scanned_from_the_beginning() {
    let (dir, other) = (written(1500).await, written(u64::MAX).await);
    let mut follower = ArchiveFollower::of(dir.path());
    assert_follows(&mut follower, dir.path());
    let first = segment::list(dir.path()).unwrap()[0];
    std::fs::remove_file(first.path(dir.path())).unwrap();
    assert_follows(&mut follower, dir.path());
    for id in segment::list(dir.path()).unwrap() {
        std::fs::remove_file(id.path(dir.path())).unwrap();
    }
    for id in segment::list(other.path()).unwrap() {
        std::fs::copy(id.path(other.path()), id.path(dir.path())).unwrap();
    }
    assert_follows(&mut follower, dir.path());
    // A damaged record is reported once, however often the directory is read.
    let mut follower = ArchiveFollower::of(dir.path());
    let last = *segment::list(dir.path()).unwrap().last().unwrap();
    let mut bytes = std::fs::read(last.path(dir.path())).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(last.path(dir.path()), &bytes).unwrap();
    assert_follows(&mut follower, dir.path());
    assert_follows(&mut follower, dir.path());
    assert!(!follower.archive().unwrap().damage().is_empty());
}

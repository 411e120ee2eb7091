//! A follower of a data directory finds at every moment what a scan from the beginning finds.

use super::*;

/// Returns what a reader can see of an archive, as comparable texts.
fn content(archive: &Archive) -> Vec<String> {
    let trials = archive.trials().map(|(trial, damage)| format!("{trial:?} {damage:?}"));
    let outlines = archive.outlines().map(|outline| format!("{outline:?}"));
    let closed = archive.closed_groups().map(|group| format!("closed {group}"));
    let policy = archive.policy_changes().iter().map(|change| format!("{change:?}"));
    trials.chain(outlines).chain(closed).chain(policy).chain([format!("{:?}", archive.damage())]).collect()
}

#[track_caller]
fn assert_follows(follower: &mut ArchiveFollower, dir: &Path) {
    assert_eq!(content(&follower.archive().unwrap()), content(&Archive::open(dir).unwrap()));
}

/// Writes two trials of that many turns into segments of that many bytes. Returns their directory.
async fn written(segment: u64, turns: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let opened_store = Store::with_segments_of(segment, dir.path(), StoreSettings::default()).unwrap();
    for name in ["one", "other"] {
        opened_store.store.append(opened(name)).await.unwrap();
        keep_all(&opened_store.store, &conversation(name, turns)).await;
        let change =
            PolicyChange { version: 1, label: name.to_owned(), is_set: true, at: Timestamp::UNIX_EPOCH };
        opened_store.store.append(Event::Policy(change)).await.unwrap();
        let (trial_id, at) = (TrialId::new(name).unwrap(), Timestamp::UNIX_EPOCH);
        opened_store.store.append(Event::Sealed { trial_id, at }).await.unwrap();
    }
    tokio::task::spawn_blocking(|| opened_store.thread.finish()).await.unwrap().unwrap();
    dir
}

#[tokio::test]
async fn records_that_arrive_in_pieces_are_found_once_each() {
    for segment in [1500, u64::MAX] {
        let (whole, copy) = (written(segment, 4).await, tempfile::tempdir().unwrap());
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
    let (dir, other) = (written(1500, 4).await, written(u64::MAX, 4).await);
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

#[tokio::test]
async fn a_segment_that_is_replaced_or_truncated_and_written_again_is_scanned_again() {
    let (short, long) = (written(u64::MAX, 2).await, written(u64::MAX, 6).await);
    let id = segment::list(short.path()).unwrap()[0];
    let file = id.path(short.path());
    let mut follower = ArchiveFollower::of(short.path());
    assert_follows(&mut follower, short.path());
    // The other file has the same name and is longer.
    let (before, after) = (std::fs::read(&file).unwrap(), std::fs::read(id.path(long.path())).unwrap());
    assert!(after.len() > before.len());
    std::fs::write(&file, &after).unwrap();
    assert_follows(&mut follower, short.path());
    assert_eq!(follower.archive().unwrap().damage(), []);
}

#[tokio::test]
async fn a_record_that_is_half_written_behind_damage_is_found_once_it_is_whole() {
    let (whole, copy) = (written(u64::MAX, 3).await, tempfile::tempdir().unwrap());
    let id = segment::list(whole.path()).unwrap()[0];
    let mut bytes = std::fs::read(id.path(whole.path())).unwrap();
    // The header of the second record is damaged, so the reader looks for the next whole record.
    let first = usize::try_from(segment::HEAD).unwrap();
    let length = u32::from_le_bytes(bytes[first..first + 4].try_into().unwrap()) as usize;
    bytes[first + 12 + length] ^= 0xff;
    let mut follower = ArchiveFollower::of(copy.path());
    for cut in (0..bytes.len()).step_by(53).chain([bytes.len()]) {
        std::fs::write(id.path(copy.path()), &bytes[..cut]).unwrap();
        assert_follows(&mut follower, copy.path());
    }
}

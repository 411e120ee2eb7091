//! Opens a data directory: scans its content, and starts the threads that write to it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use rolltap_rollout::call::Call;
use tokio::sync::{Notify, Semaphore, mpsc};

use super::format::note::{Pause, current_pause};
use super::format::segment::SegmentId;
use super::health::{EndOfThread, Health, Part};
use super::read::recovery::{self, Scan, Unfinished};
use super::replica::StoreCopy;
use super::write::encoder::Encoder;
use super::write::fsync::Unsynced;
use super::write::group_commit::{self, GroupCommit};
use super::write::log::{Log, Segment};
use super::write::priority::lower_priority;
use super::write::writer::Writer;
use super::{CALLS, CallEntry, Event, Forgotten, GroupClosed, PLACES, PolicyChange, RecoveredTrial};
use super::{EndOnPurpose, Store, StoreError, StoreSettings, StoreThread, lock};
use crate::common::clock;

/// The size in bytes beyond which a segment is followed by another.
const SEGMENT: u64 = 64 << 20;

/// An opened store, and the content of its directory.
#[derive(Debug)]
pub(crate) struct OpenedStore {
    pub(crate) store: Store,
    pub(crate) thread: StoreThread,
    /// Every trial, in the order in which they were opened.
    pub(crate) trials: Vec<RecoveredTrial>,
    pub(crate) policy: Vec<PolicyChange>,
    /// Receives trials when the store forgets them, because their retention is over.
    pub(crate) forgotten: mpsc::UnboundedReceiver<Forgotten>,
    /// The highest feed number of a trial whose retention is over. 0 if there is none.
    pub(crate) forgotten_through: u64,
    /// The closed groups, in the order in which they closed.
    pub(crate) closed_groups: Vec<GroupClosed>,
    /// The highest number of a completion or closing.
    pub(crate) last_sequence: u64,
    /// The pause in which the previous process ended. `None` if there was none.
    pub(crate) pause: Option<Pause>,
    pub(super) unfinished: Vec<Unfinished>,
}

impl Store {
    /// Opens a data directory and locks it for this process. Creates it if it is missing. Requires a tokio runtime.
    pub(crate) fn open(data_dir: &Path, settings: StoreSettings) -> Result<OpenedStore, StoreError> {
        Self::open_locked(lock::DirLock::take(data_dir)?, data_dir, settings, None)
    }

    /// Opens a data directory that is locked already. `replica` gets a copy of each record.
    pub(super) fn open_locked(
        lock: lock::DirLock,
        data_dir: &Path,
        settings: StoreSettings,
        replica: Option<StoreCopy>,
    ) -> Result<OpenedStore, StoreError> {
        Self::open_with(SEGMENT, lock, data_dir, settings, replica)
    }

    #[cfg(test)]
    pub(super) fn with_segments_of(
        bytes: u64,
        data_dir: &Path,
        settings: StoreSettings,
    ) -> Result<OpenedStore, StoreError> {
        Self::open_with(bytes, lock::DirLock::take(data_dir)?, data_dir, settings, None)
    }

    fn open_with(
        segment_size: u64,
        lock: lock::DirLock,
        data_dir: &Path,
        settings: StoreSettings,
        replica: Option<StoreCopy>,
    ) -> Result<OpenedStore, StoreError> {
        let StoreSettings { sync, retention } = settings;
        let refused = |error: &dyn std::fmt::Display| StoreError::Write {
            path: data_dir.display().to_string(),
            reason: error.to_string(),
        };
        // The lock comes first: another process could otherwise still append during the scan.
        let looked = recovery::scan(data_dir).map_err(Arc::new)?;
        looked
            .damage
            .iter()
            .for_each(|damage| tracing::error!(%damage, "a part of the captures cannot be read"));
        let segment = last_segment(data_dir, &looked).map_err(|error| refused(&error))?;
        let Scan { trials, policy, closed_groups, last_sequence, forgotten_through, .. } = looked;
        let Scan { index, unfinished, latest, pauses, .. } = looked;

        let (tell_forgotten, forgotten) = mpsc::unbounded_channel();
        let (health, unsynced, is_ending) = (Health::new(), Unsynced::default(), Arc::default());
        let index = Arc::new(Mutex::new(index));
        let latest = latest.unwrap_or(SegmentId::NONE);
        let replicated = replica.as_ref().map(|copy| copy.publisher.stored());
        // A segment in object storage never changes again.
        let archived = replica.as_ref().and_then(|copy| copy.archived);
        let segment = segment.filter(|_| archived.is_none_or(|archived| archived < latest));
        let log = Arc::new(Mutex::new(Log {
            dir: data_dir.to_owned(),
            sync,
            segment_size,
            segment,
            latest,
            encoder: Encoder::new(latest).map_err(|error| refused(&error))?,
            index: Arc::clone(&index),
            unsynced: unsynced.clone(),
            retention,
            policy: policy.clone(),
            sequence: last_sequence,
            forgotten: tell_forgotten,
            forgotten_through,
            begun: std::time::Instant::now(),
            buffer: Vec::new(),
            replica,
        }));
        let (queue, entries) = mpsc::channel(PLACES);
        let distrusted = Arc::new(Notify::new());
        let batches = group_commit::spawn(GroupCommit {
            entries,
            log: Arc::clone(&log),
            health: health.clone(),
            distrusted: Arc::clone(&distrusted),
            replicated,
        });
        let writer = Writer { log, health: health.clone(), is_ending: Arc::clone(&is_ending) };
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let end = || EndOfThread { health: health.clone(), is_ending: Arc::clone(&is_ending) };
        let (writer_end, syncer_end) = (end(), end());
        let is_over = unsynced.over_on_drop();
        let write = move || {
            // The guards drop after the writer, even if it panics, and then end the syncer.
            let _ends = (writer_end, is_over);
            lower_priority();
            writer.run(batches)
        };
        let writer = thread("capture-store").spawn(write).map_err(|error| refused(&error))?;
        let failed = sync_failed(data_dir, &health, distrusted);
        let sync = move || {
            let _end = syncer_end;
            lower_priority();
            unsynced.run(failed);
        };
        let syncer = thread("capture-sync").spawn(sync).map_err(|error| refused(&error))?;
        let calls = Arc::new(Semaphore::new(CALLS));
        let store = Self { queue: queue.clone(), calls, health, index, dir: data_dir.into() };
        let thread = StoreThread { writer, syncer, is_ending: EndOnPurpose(is_ending), queue, _lock: lock };
        Ok(OpenedStore {
            store,
            thread,
            trials,
            policy,
            forgotten,
            forgotten_through,
            closed_groups,
            last_sequence,
            pause: current_pause(&pauses),
            unfinished,
        })
    }
}

impl OpenedStore {
    /// Records the end of the pause in which the previous process ended.
    pub(crate) async fn end_pause(&mut self) -> Result<(), StoreError> {
        let Some(pause) = self.pause.take() else { return Ok(()) };
        let ended = Pause { ended_at: Some(clock::now()), ..pause };
        self.store.append(Event::Paused(ended)).await
    }

    /// Records each call that was in flight when the previous process ended as interrupted.
    pub(crate) async fn note_interrupted(&mut self) -> Result<(), StoreError> {
        for Unfinished { trial_id, call_id, at } in self.unfinished.drain(..) {
            let call = Call::interrupted(call_id, trial_id, at, clock::now());
            self.store.append(Event::Call(CallEntry { call: Arc::new(call), told: None })).await?;
        }
        Ok(())
    }
}

/// Opens the last segment to append to it. A process that died while it wrote left a part of a record. That record was
/// never acknowledged, so it is truncated.
fn last_segment(dir: &Path, looked: &Scan) -> std::io::Result<Option<Segment>> {
    let Some((id, end)) = looked.last else { return Ok(None) };
    let path = id.path(dir);
    let file = std::fs::OpenOptions::new().append(true).open(&path)?;
    let length = file.metadata()?.len();
    if length > end {
        tracing::warn!(path = %path.display(), bytes = length - end, "cut a record that a dying process had half written");
        file.set_len(end)?;
    }
    Ok(Some(Segment { file: Arc::new(file), end }))
}

/// Returns the reaction to a failed fsync: no more records are appended to that file.
fn sync_failed(
    dir: &Path,
    health: &Health,
    distrusted: Arc<Notify>,
) -> impl Fn(&std::io::Error) + Send + use<> {
    let (path, health) = (dir.display().to_string(), health.clone());
    move |error| {
        let reason = format!("{error}; what was written last may not survive the death of this machine");
        health.fails(Part::Disk, StoreError::Write { path: path.clone(), reason });
        // This does not take a place in the queue, which may be full. The notification stays until it is read.
        distrusted.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use rolltap_testing::limit;

    use super::*;

    #[tokio::test]
    async fn after_a_failed_fsync_a_segment_begins_although_the_queue_is_full() {
        let (queue, entries) = mpsc::channel(1);
        let _place = queue.clone().reserve_owned().await.unwrap();
        let health = Health::new();
        let distrusted = Arc::new(Notify::new());
        let dir = tempfile::tempdir().unwrap();
        let log = Arc::new(Mutex::new(Log::empty(dir.path())));
        let gathers = GroupCommit {
            entries,
            log,
            health: health.clone(),
            distrusted: Arc::clone(&distrusted),
            replicated: None,
        };
        let mut batches = group_commit::spawn(gathers);
        sync_failed(Path::new("data"), &health, distrusted)(&std::io::Error::other("on purpose"));
        let batch = tokio::time::timeout(limit(5), batches.recv()).await.unwrap().unwrap();
        assert!(batch.in_new_segment && batch.events.is_empty());
    }
}

//! The current segment: appends encoded events, begins the next segment, and removes segments whose retention is over.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::mpsc;

use super::encoder::{Encoder, Placed};
use super::fsync::{SyncPolicy, Unsynced};
use crate::common::clock;
use crate::store::format::segment::{self, HEAD, SegmentId};
use crate::store::read::index::Index;
use crate::store::replica::{ArchiveTask, StoreCopy};
use crate::store::retention::{Retention, SegmentFacts};
use crate::store::{Event, Forgotten, PolicyChange, StoreError};

/// The log of a data directory, and the state that its next records need.
pub(crate) struct Log {
    pub(crate) dir: PathBuf,
    pub(crate) sync: SyncPolicy,
    pub(crate) segment_size: u64,
    /// The current segment, and the offset of its next record. `None` if another segment must begin.
    pub(crate) segment: Option<Segment>,
    /// The highest number of a segment that has a file.
    pub(crate) latest: SegmentId,
    pub(crate) encoder: Encoder,
    pub(crate) index: Arc<Mutex<Index>>,
    pub(crate) unsynced: Unsynced,
    pub(crate) retention: Retention,
    /// Every change of the policy version. The event for forgotten trials repeats them, because their segments may be
    /// removed.
    pub(crate) policy: Vec<PolicyChange>,
    /// The highest feed number, which that event repeats for the same reason.
    pub(crate) sequence: u64,
    /// Reports the forgotten trials.
    pub(crate) forgotten: mpsc::UnboundedSender<Forgotten>,
    /// The highest feed number of a forgotten trial.
    pub(crate) forgotten_through: u64,
    /// When the current segment began, or when this process began to append to it.
    pub(crate) begun: Instant,
    /// The bytes of one system call.
    pub(crate) buffer: Vec<u8>,
    /// The copy of the log in a cluster. `None` without a cluster.
    pub(crate) replica: Option<StoreCopy>,
}

/// The segment that is written to.
pub(crate) struct Segment {
    pub(crate) file: Arc<File>,
    pub(crate) end: u64,
}

impl Log {
    /// Whether the next events fit into the current segment.
    fn has_room(&self) -> bool {
        self.segment.as_ref().is_some_and(|segment| segment.end <= self.segment_size && !self.is_old(segment))
    }

    /// Whether the segment has been open for so long that it is closed for object storage.
    fn is_old(&self, segment: &Segment) -> bool {
        let archiving = self.replica.as_ref().and_then(|copy| copy.archiving.as_ref());
        segment.end > HEAD && archiving.is_some_and(|archiving| self.begun.elapsed() >= archiving.segment_age)
    }

    /// Makes the current segment durable, and closes it for object storage. Nothing is appended afterwards.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.sync()?;
        if self.segment.as_ref().is_some_and(|segment| segment.end > HEAD) {
            self.archive_latest();
        }
        Ok(())
    }

    fn archive_latest(&self) {
        if let Some(copy) = self.replica.as_ref().filter(|_| self.latest != SegmentId::NONE) {
            copy.archive(|publisher| ArchiveTask::Closed(self.latest, publisher.mark()));
        }
    }

    /// Whether an append waits for the disk, and not only for the page cache.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.sync == SyncPolicy::Always || !self.has_room()
    }

    /// Lets the next events begin another segment, because an fsync of the current file failed.
    pub(crate) fn abandon_segment(&mut self) {
        self.segment = None;
    }

    /// Makes the current segment durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.segment.as_ref().map_or(Ok(()), |segment| segment.file.sync_data())
    }

    /// Returns the error of the store for an error of the current file.
    pub(crate) fn refused(&self, error: &io::Error) -> StoreError {
        StoreError::Write {
            path: self.latest.path(&self.dir).display().to_string(),
            reason: error.to_string(),
        }
    }

    /// Writes the events with one system call. Begins another segment if the current one is full. After an error, the
    /// caller writes all of them again.
    pub(crate) fn append(&mut self, events: &[Event]) -> io::Result<()> {
        if !self.has_room() {
            self.begin_segment()?;
        }
        let Some(Segment { file, end }) = &self.segment else { return Ok(()) };
        let (file, end) = (Arc::clone(file), *end);
        let mut placed = Placed::new();
        self.buffer.clear();
        let encoded = self.encode(events, end, &mut placed);
        let written = encoded.and_then(|()| (&*file).write_all(&self.buffer));
        let durable = match (&written, self.sync) {
            (Ok(()), SyncPolicy::Always) => file.sync_data(),
            _ => Ok(()),
        };
        let is_durable = durable.is_ok();
        if let Err(error) = written.and(durable) {
            // The whole batch is written again. A file whose fsync failed is not used, and no record may refer to a
            // half-written one.
            self.encoder.forget();
            let is_cut = file.set_len(end).is_ok();
            self.segment = (is_cut && is_durable).then_some(Segment { file, end });
            return Err(error);
        }
        if self.sync == SyncPolicy::Interval {
            self.unsynced.wrote(&file);
        }
        self.segment = Some(Segment { file, end: end + self.buffer.len() as u64 });
        self.replicate(end);
        // A call enters the index only after it is written, so that readers find it in the file.
        let mut index = self.index();
        placed.into_iter().for_each(|(trial, at)| index.add_call(trial, at));
        drop(index);
        events.iter().for_each(|event| self.remember(event));
        Ok(())
    }

    /// Appends the buffer, which was written at this offset of the current segment, to the copy of the log.
    fn replicate(&mut self, offset: u64) {
        if let Some(copy) = &mut self.replica {
            copy.publisher.append(self.latest.number(), offset, &self.buffer);
        }
    }

    /// The number with which everything so far is in the copy of the log. 0 without a cluster.
    pub(crate) fn replica_number(&self) -> u64 {
        self.replica.as_ref().map_or(0, |copy| copy.publisher.latest())
    }

    fn remember(&mut self, event: &Event) {
        match event {
            Event::Policy(change) => self.policy.push(change.clone()),
            Event::Completed { completion, .. } => self.sequence = self.sequence.max(completion.sequence),
            Event::GroupClosed(closed) => self.sequence = self.sequence.max(closed.sequence),
            _ => {}
        }
    }

    fn encode(&mut self, events: &[Event], end: u64, placed: &mut Placed) -> io::Result<()> {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        events
            .iter()
            .try_for_each(|event| self.encoder.encode(event, end, &mut index, &mut self.buffer, placed))
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        // No later write schedules an fsync of the full segment, so it is made durable here.
        if let Some(segment) = &self.segment
            && self.sync != SyncPolicy::Off
        {
            segment.file.sync_data()?;
        }
        let id = self.latest.next();
        let file = segment::create(&self.dir, id)?;
        self.archive_latest();
        (self.latest, self.begun) = (id, Instant::now());
        self.encoder.begin(id);
        self.segment = Some(Segment { file: Arc::new(file), end: HEAD });
        self.retire_if_asked();
        Ok(())
    }

    pub(crate) fn retire_if_asked(&mut self) {
        if self.retention != Retention::default()
            && let Err(error) = self.retire()
        {
            tracing::warn!(%error, "captures whose retention is over could not be removed; it is tried again later");
        }
    }

    /// Removes segments whose retention is over. Records first that their trials are forgotten.
    fn retire(&mut self) -> io::Result<()> {
        let mut facts = Vec::new();
        // The current segment is never removed.
        for id in segment::list(&self.dir)?.into_iter().filter(|id| *id != self.latest) {
            let bytes = id.path(&self.dir).metadata()?.len();
            facts.push(SegmentFacts { id, bytes, settled: self.index().settled(id) });
        }
        let expired = self.retention.expired(&facts, clock::now());
        if expired.is_empty() {
            return Ok(());
        }
        let trials = self.index().trials_in(&expired);
        let through = self.index().newest_completion(&expired).max(self.forgotten_through);
        self.append_forgotten(Event::Forgotten {
            trials: trials.clone(),
            policy: self.policy.clone(),
            sequence: self.sequence,
            through,
        })?;
        self.forgotten_through = through;
        self.index().forget(&trials, &expired);
        tracing::info!(
            trials = trials.len(),
            segments = expired.len(),
            "removing captures whose retention is over"
        );
        // The receiver may be gone.
        let _ = self.forgotten.send(Forgotten { trials, through });
        if let Some(copy) = &mut self.replica {
            expired.iter().for_each(|id| copy.publisher.remove(id.number()));
            copy.archive(|_| ArchiveTask::Removed(expired.clone()));
        }
        expired.iter().try_for_each(|id| std::fs::remove_file(id.path(&self.dir)))
    }

    /// Appends the event, and makes it durable before anything is removed.
    fn append_forgotten(&mut self, event: Event) -> io::Result<()> {
        let Some(Segment { file, end }) = &self.segment else { return Ok(()) };
        let (file, end) = (Arc::clone(file), *end);
        self.buffer.clear();
        self.encode(&[event], end, &mut Placed::new())?;
        (&*file).write_all(&self.buffer).and_then(|()| file.sync_data()).inspect_err(|_| {
            // Truncates the half-written record. If that fails too, recovery reads a torn end or the event itself.
            drop(file.set_len(end));
        })?;
        self.replicate(end);
        self.segment = Some(Segment { file, end: end + self.buffer.len() as u64 });
        Ok(())
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a log without a segment.
    #[cfg(test)]
    pub(crate) fn empty(dir: &std::path::Path) -> Self {
        Self {
            dir: dir.to_owned(),
            sync: SyncPolicy::default(),
            segment_size: 1 << 20,
            segment: None,
            latest: SegmentId::NONE,
            encoder: Encoder::new(SegmentId::NONE).unwrap(),
            index: Arc::default(),
            unsynced: Unsynced::default(),
            retention: Retention::default(),
            policy: Vec::new(),
            sequence: 0,
            forgotten: mpsc::unbounded_channel().0,
            forgotten_through: 0,
            begun: Instant::now(),
            buffer: Vec::new(),
            replica: None,
        }
    }
}

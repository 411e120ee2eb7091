//! The thread that writes. It takes a batch, writes it with one system call, and reports the result.
//!
//! A failed write is retried in the same order until it succeeds. Only shutdown gives up.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::encoder::{Encoder, Placed};
use super::fsync::{SyncPolicy, Unsynced};
use super::group_commit::Batch;
use crate::common::clock;
use crate::store::format::segment::{self, HEAD, SegmentId};
use crate::store::health::Health;
use crate::store::read::index::Index;
use crate::store::retention::{Retention, SegmentFacts};
use crate::store::{Event, Forgotten, PolicyChange, StoreError};

/// The pause between two tries of a failed write.
const AGAIN: Duration = Duration::from_millis(250);
/// How long shutdown waits for a failing disk.
const LAST_TRIES: Duration = Duration::from_secs(5);

pub(crate) struct Writer {
    pub(crate) dir: PathBuf,
    pub(crate) sync: SyncPolicy,
    pub(crate) segment_size: u64,
    /// The current segment, and the offset of its next record. `None` if another segment must begin.
    pub(crate) segment: Option<Segment>,
    /// The highest number of a segment that has a file.
    pub(crate) latest: SegmentId,
    pub(crate) encoder: Encoder,
    pub(crate) index: Arc<Mutex<Index>>,
    pub(crate) health: Health,
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
    /// Whether the process is shutting down.
    pub(crate) is_ending: Arc<AtomicBool>,
    /// The bytes of one system call.
    pub(crate) buffer: Vec<u8>,
}

/// The segment that is written to.
pub(crate) struct Segment {
    pub(crate) file: Arc<File>,
    pub(crate) end: u64,
}

impl Writer {
    /// Runs until the channel of batches closes, and then makes the last segment durable.
    pub(crate) fn run(mut self, mut batches: mpsc::Receiver<Batch>) -> Result<(), StoreError> {
        self.retire_if_asked();
        while let Some(Batch { events, in_new_segment, written }) = batches.blocking_recv() {
            // After a failed fsync, nothing more is appended to the file.
            if in_new_segment {
                self.segment = None;
            }
            // The waiter may be gone.
            drop(written.send(self.write(&events)));
        }
        self.segment.map_or(Ok(()), |segment| segment.file.sync_data()).map_err(|error| StoreError::Write {
            path: self.latest.path(&self.dir).display().to_string(),
            reason: error.to_string(),
        })
    }

    /// Writes the events, and retries until it succeeds or shutdown gives up.
    fn write(&mut self, events: &[Event]) -> Result<(), StoreError> {
        let mut ends_at = None;
        loop {
            let error = match self.try_write(events) {
                Ok(()) => {
                    self.health.is_well();
                    return Ok(());
                }
                Err(error) => self.refused(&error),
            };
            self.health.fails(error.clone());
            // The time limit begins with the first failure during shutdown.
            if self.is_ending.load(Ordering::Relaxed) {
                let ends_at = *ends_at.get_or_insert_with(|| Instant::now() + LAST_TRIES);
                if Instant::now() > ends_at {
                    return Err(error);
                }
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn try_write(&mut self, events: &[Event]) -> io::Result<()> {
        if self.segment.as_ref().is_none_or(|segment| segment.end > self.segment_size) {
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
        // A call enters the index only after it is written, so that readers find it in the file.
        let mut index = self.index();
        placed.into_iter().for_each(|(trial, at)| index.add_call(trial, at));
        drop(index);
        events.iter().for_each(|event| self.remember(event));
        Ok(())
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
        self.latest = id;
        self.encoder.begin(id);
        self.segment = Some(Segment { file: Arc::new(file), end: HEAD });
        self.retire_if_asked();
        Ok(())
    }

    fn retire_if_asked(&mut self) {
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
        self.segment = Some(Segment { file, end: end + self.buffer.len() as u64 });
        Ok(())
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self, error: &io::Error) -> StoreError {
        StoreError::Write {
            path: self.latest.path(&self.dir).display().to_string(),
            reason: error.to_string(),
        }
    }
}

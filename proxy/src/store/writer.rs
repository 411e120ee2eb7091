//! The thread that writes: takes what has gathered, writes it at once, then says so.
//!
//! What cannot be written is tried again until it can, in the same order: nothing is given up but at the end of the
//! process.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::encoder::{Encoder, Placed};
use super::gather::Batch;
use super::health::Health;
use super::index::Index;
use super::segment::{self, HEAD, SegmentId};
use super::sync::{Sync, Unsynced};
use super::{Event, StoreError};

/// Between tries to write what could not be written.
const AGAIN: Duration = Duration::from_millis(250);
/// How long the end of the process waits for a disk that fails.
const LAST_TRIES: Duration = Duration::from_secs(5);

pub(super) struct Writer {
    pub(super) dir: PathBuf,
    pub(super) sync: Sync,
    pub(super) segment_size: u64,
    /// The segment that is written to, and where its next record begins; none where another must be begun.
    pub(super) segment: Option<Segment>,
    /// The latest segment that there is a file of.
    pub(super) latest: SegmentId,
    pub(super) encoder: Encoder,
    pub(super) index: Arc<Mutex<Index>>,
    pub(super) health: Health,
    pub(super) unsynced: Unsynced,
    /// The process ends.
    pub(super) is_ending: Arc<AtomicBool>,
    /// What is to be written with one system call.
    pub(super) buffer: Vec<u8>,
}

/// The segment that is written to.
pub(super) struct Segment {
    pub(super) file: Arc<File>,
    pub(super) end: u64,
}

impl Writer {
    /// Runs until no batch can come any more, then makes the last segment durable.
    pub(super) fn run(mut self, mut batches: mpsc::Receiver<Batch>) -> Result<(), StoreError> {
        while let Some(Batch { events, in_new_segment, written }) = batches.blocking_recv() {
            if in_new_segment {
                self.segment = None;
            }
            // Told even if nobody waits for it any more.
            drop(written.send(self.write(&events)));
        }
        self.unsynced.is_over();
        self.segment.map_or(Ok(()), |segment| segment.file.sync_data()).map_err(|error| StoreError::Write {
            path: self.latest.path(&self.dir).display().to_string(),
            reason: error.to_string(),
        })
    }

    /// Writes, however often it takes.
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
            (Ok(()), Sync::Always) => file.sync_data(),
            _ => Ok(()),
        };
        let is_durable = durable.is_ok();
        if let Err(error) = written.and(durable) {
            // All of it goes again, into a file that can be trusted, and nothing may refer to what is half written.
            self.encoder.forget();
            let is_cut = file.set_len(end).is_ok();
            self.segment = (is_cut && is_durable).then_some(Segment { file, end });
            return Err(error);
        }
        if self.sync == Sync::Interval {
            self.unsynced.wrote(&file);
        }
        self.segment = Some(Segment { file, end: end + self.buffer.len() as u64 });
        let mut index = self.index();
        placed.into_iter().for_each(|(trial, at)| index.add_call(trial, at));
        Ok(())
    }

    fn encode(&mut self, events: &[Event], end: u64, placed: &mut Placed) -> io::Result<()> {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        events
            .iter()
            .try_for_each(|event| self.encoder.encode(event, end, &mut index, &mut self.buffer, placed))
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        if let Some(segment) = &self.segment
            && self.sync != Sync::Off
        {
            segment.file.sync_data()?;
        }
        let id = self.latest.next();
        let file = segment::create(&self.dir, id)?;
        self.latest = id;
        self.encoder.begin(id);
        self.segment = Some(Segment { file: Arc::new(file), end: HEAD });
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

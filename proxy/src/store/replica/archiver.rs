//! Uploads closed segments to object storage, and then removes them from the log of the shard.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use rolltap_cluster::objects::{ArchiveError, SegmentArchive};
use rolltap_cluster::publisher::Trimmer;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::store::format::segment::SegmentId;

/// The pause after the first failure. Each further pause is twice as long, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What the log of a store passes to its archiver, in the order of the events.
#[derive(Debug)]
pub(crate) enum ArchiveTask {
    /// A segment is closed. The receiver gets a sequence number up to which the log has nothing of later segments.
    Closed(SegmentId, oneshot::Receiver<u64>),
    /// Segments are removed, because their retention is over.
    Removed(Vec<SegmentId>),
}

/// The archiver, as the log of a store sees it.
#[derive(Debug)]
pub(crate) struct SegmentArchiving {
    pub(crate) tasks: mpsc::UnboundedSender<ArchiveTask>,
    /// The age at which a segment is closed.
    pub(crate) segment_age: Duration,
}

/// Uploads the closed segments of a shard, in their order.
#[derive(Debug)]
pub(super) struct Archiver {
    pub(super) archive: SegmentArchive,
    pub(super) epoch: u64,
    pub(super) dir: PathBuf,
    pub(super) trimmer: Trimmer,
    /// Segments that an earlier holder closed and did not upload, with the sequence numbers of their last messages.
    pub(super) closed: Vec<(SegmentId, u64)>,
    /// The age at which a segment is closed.
    pub(super) segment_age: Duration,
}

/// Nothing more can be uploaded: a later holder has the shard, or the place has other content.
struct Ended;

impl Archiver {
    /// The last segment in object storage.
    pub(super) fn latest(&self) -> Option<SegmentId> {
        let last = self.archive.manifest()?.segments.last()?;
        Some(SegmentId::of_number(last.number))
    }

    /// Starts the task. It ends after the last task of a store that has ended.
    pub(super) fn start(self) -> (SegmentArchiving, JoinHandle<()>) {
        let segment_age = self.segment_age;
        let (tasks, received) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            // An error is logged where it happens. The node keeps its captures in NATS then.
            let _ = self.run(received).await;
        });
        (SegmentArchiving { tasks, segment_age }, task)
    }

    async fn run(mut self, mut tasks: mpsc::UnboundedReceiver<ArchiveTask>) -> Result<(), Ended> {
        for (segment, sequence) in std::mem::take(&mut self.closed) {
            self.store(segment, sequence).await?;
        }
        while let Some(task) = tasks.recv().await {
            match task {
                ArchiveTask::Closed(segment, sequence) => {
                    // The log was fenced, so a later holder uploads the segment.
                    let sequence = sequence.await.map_err(|_| Ended)?;
                    self.store(segment, sequence).await?;
                }
                ArchiveTask::Removed(segments) => self.remove(&segments).await?,
            }
        }
        Ok(())
    }

    /// Uploads a segment, and removes it from the log. Repeats that until it succeeds.
    async fn store(&mut self, segment: SegmentId, sequence: u64) -> Result<(), Ended> {
        let path = segment.path(&self.dir);
        let mut pause = FIRST_PAUSE;
        loop {
            let uploaded = match self.archive.upload(segment.number(), &path).await {
                Ok(object) => self.archive.commit(self.epoch, sequence, &[object]).await.map(|_| ()),
                Err(error) => Err(error),
            };
            match uploaded {
                Ok(()) => break,
                // Retention has removed the file before the upload.
                Err(_) if path.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) => {
                    return Ok(());
                }
                Err(error) => self.wait(&error, &mut pause).await?,
            }
        }
        if let Err(error) = self.trimmer.trim(sequence).await {
            // The next segment trims the log further.
            tracing::warn!(error, "uploaded captures could not be removed from NATS yet");
        }
        Ok(())
    }

    async fn remove(&mut self, segments: &[SegmentId]) -> Result<(), Ended> {
        let is_removed = |number: u32| segments.iter().any(|id| id.number() == number);
        let mut pause = FIRST_PAUSE;
        loop {
            let known = self.archive.manifest().map(|manifest| manifest.segments.clone()).unwrap_or_default();
            let objects: Vec<_> = known.into_iter().filter(|object| is_removed(object.number)).collect();
            match self.archive.remove(self.epoch, &objects).await {
                Ok(()) => return Ok(()),
                Err(error) => self.wait(&error, &mut pause).await?,
            }
        }
    }

    /// Waits before another attempt, if the error may pass.
    async fn wait(&self, error: &ArchiveError, pause: &mut Duration) -> Result<(), Ended> {
        if !error.is_transient() {
            tracing::error!(%error, "captures are no longer uploaded; they stay in NATS and in the data directory");
            return Err(Ended);
        }
        tracing::warn!(%error, again_in = ?pause, "captures could not be uploaded; they stay in NATS until they are");
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

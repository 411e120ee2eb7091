//! The copy of a store in a cluster: rebuilding the data directory from it, and the state of the copy.
//!
//! In a cluster, the data directory is a cache. A node that becomes the holder of a shard removes the segments that it has,
//! and writes those of the shard's log.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rolltap_cluster::log::{LogEntry, LogError, ShardLog};
use rolltap_cluster::publisher::{Publisher, Replicated};
use rolltap_cluster::{Cluster, ClusterError};
use tokio::sync::watch;

use super::format::segment::{self, HEAD, SegmentId};
use super::health::{Health, Part};
use super::lock::DirLock;
use super::{OpenedStore, Store, StoreError, StoreSettings};

/// The file that marks a data directory as the cache of a shard. It names the cluster and the shard.
const MARK: &str = "CLUSTER";

/// Why the captures of a shard cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// NATS failed, or the log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError<io::Error>),
    /// NATS failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The data directory cannot be locked, or the store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file cannot be written.
    #[error("cannot write to the data directory {path}: {source}")]
    Write {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The directory has captures that are nowhere else.
    #[error(
        "{path} has captures that are not those of {expected}{found}: a node of a cluster overwrites its data directory, so \
         give an empty one as --data"
    )]
    NotACache {
        /// The directory.
        path: PathBuf,
        /// The cluster and the shard.
        expected: String,
        /// What the directory belongs to, in parentheses. Empty if it belongs to no cluster.
        found: String,
    },
}

impl RestoreError {
    /// Whether NATS failed, which may pass.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Cluster(_) | Self::Log(LogError::Cluster(_)))
    }
}

/// A data directory with the captures of a shard, whose log this node may append to.
#[derive(Debug)]
pub(crate) struct Restored {
    lock: DirLock,
    publisher: Publisher,
    /// The number of segments.
    pub(crate) segments: usize,
    /// The bytes of all segments.
    pub(crate) bytes: u64,
}

impl Restored {
    /// Reads the log of a shard into the data directory, and fences its previous writers.
    pub(crate) async fn from_log(
        cluster: &Cluster,
        shard: u32,
        epoch: u64,
        data_dir: &Path,
    ) -> Result<Self, RestoreError> {
        let cannot = |source| RestoreError::Write { path: data_dir.to_owned(), source };
        let lock = DirLock::take(data_dir)?;
        clear(data_dir, &format!("cluster {} ({}), shard {shard}", cluster.name(), cluster.id()))?;
        let log = ShardLog::open(cluster, shard).await?;
        let mut files = SegmentFiles { dir: data_dir.to_owned(), current: None };
        let publisher = Publisher::claim(log, epoch, |entry| files.apply(entry)).await?;
        files.finish().map_err(cannot)?;
        let segments = segment::list(data_dir).map_err(cannot)?;
        let sizes = segments.iter().map(|id| id.path(data_dir).metadata().map(|file| file.len()));
        let bytes = sizes.sum::<io::Result<u64>>().map_err(cannot)?;
        Ok(Self { lock, publisher, segments: segments.len(), bytes })
    }

    /// Opens the store. Its records go to the log of the shard too. Requires a tokio runtime.
    pub(crate) fn open(self, data_dir: &Path, settings: StoreSettings) -> Result<OpenedStore, StoreError> {
        let Self { lock, publisher, .. } = self;
        let state = publisher.state();
        let opened = Store::open_locked(lock, data_dir, settings, Some(publisher))?;
        tokio::spawn(show(state, opened.store.health()));
        Ok(opened)
    }
}

/// Removes the segments of a directory that is the cache of this shard, or that is empty, and marks it.
fn clear(dir: &Path, expected: &str) -> Result<(), RestoreError> {
    let cannot = |source| RestoreError::Write { path: dir.to_owned(), source };
    let mark = dir.join(MARK);
    let segments = segment::list(dir).map_err(cannot)?;
    let found = fs::read_to_string(&mark).ok();
    if !segments.is_empty() && found.as_deref().map(str::trim_end) != Some(expected) {
        let found = found.map_or_else(String::new, |found| format!(" ({} has {})", MARK, found.trim_end()));
        return Err(RestoreError::NotACache { path: dir.to_owned(), expected: expected.to_owned(), found });
    }
    fs::write(&mark, format!("{expected}\n")).map_err(cannot)?;
    segments.iter().try_for_each(|id| fs::remove_file(id.path(dir))).map_err(cannot)
}

/// Writes segments from the entries of a log.
struct SegmentFiles {
    dir: PathBuf,
    current: Option<(SegmentId, File)>,
}

impl SegmentFiles {
    fn apply(&mut self, entry: LogEntry) -> io::Result<()> {
        match entry {
            LogEntry::Epoch(_) => Ok(()),
            LogEntry::Append { segment, offset, bytes } => {
                self.append(SegmentId::of_number(segment), offset, &bytes)
            }
            LogEntry::Remove { segment } => {
                let id = SegmentId::of_number(segment);
                self.current = self.current.take().filter(|(current, _)| *current != id);
                fs::remove_file(id.path(&self.dir))
            }
        }
    }

    fn append(&mut self, id: SegmentId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.current.as_ref().is_none_or(|(current, _)| *current != id) {
            self.finish()?;
            self.current = Some((id, self.open(id, offset)?));
        }
        let Some((_, file)) = &mut self.current else { return Ok(()) };
        let length = file.metadata()?.len();
        if offset > length {
            let missing =
                format!("it continues segment {} at {offset}, which has {length} bytes", id.number());
            return Err(io::Error::new(io::ErrorKind::InvalidData, missing));
        }
        if offset < length {
            // An earlier holder ended within a record. Its successor truncated that and continued there.
            file.set_len(offset)?;
        }
        file.write_all(bytes)
    }

    /// Opens a segment to append to it. The log has no entry for the head of a segment.
    fn open(&self, id: SegmentId, offset: u64) -> io::Result<File> {
        let path = id.path(&self.dir);
        if offset == HEAD && !path.exists() {
            return segment::create(&self.dir, id);
        }
        File::options().append(true).open(path)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.current.take().map_or(Ok(()), |(_, file)| file.sync_data())
    }
}

/// Shows the state of the copy in the health of the store, until either ends.
async fn show(mut state: watch::Receiver<Replicated>, health: Health) {
    loop {
        let current = state.borrow_and_update().clone();
        match current {
            Replicated::Through(_) => health.is_well(Part::Log),
            Replicated::Failing { reason, .. } => health.fails(Part::Log, StoreError::Replicate(reason)),
            Replicated::Fenced { .. } => {
                return health.ends(StoreError::TakenOver("it appends to the log of the shard".to_owned()));
            }
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn append(segment: u32, offset: u64, bytes: &'static [u8]) -> LogEntry {
        LogEntry::Append { segment, offset, bytes: Bytes::from_static(bytes) }
    }

    fn files(dir: &Path) -> SegmentFiles {
        SegmentFiles { dir: dir.to_owned(), current: None }
    }

    fn content(dir: &Path, segment: u32) -> Vec<u8> {
        fs::read(SegmentId::of_number(segment).path(dir)).unwrap().split_off(HEAD as usize)
    }

    #[test]
    fn entries_become_the_segments_that_they_were_made_from() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = files(dir.path());
        let entries = [
            LogEntry::Epoch(1),
            append(1, 8, b"abc"),
            append(1, 11, b"torn"),
            // The next holder truncates the torn record.
            LogEntry::Epoch(2),
            append(1, 11, b"d"),
            append(2, 8, b"e"),
            LogEntry::Remove { segment: 1 },
            append(2, 9, b"f"),
        ];
        for (count, entry) in entries.into_iter().enumerate() {
            files.apply(entry).unwrap();
            if count == 5 {
                assert_eq!(content(dir.path(), 1), b"abcd");
            }
        }
        files.finish().unwrap();
        assert_eq!(segment::list(dir.path()).unwrap(), [SegmentId::of_number(2)]);
        assert_eq!(content(dir.path(), 2), b"ef");
    }

    #[test]
    fn a_gap_is_an_error_and_not_a_hole() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = files(dir.path());
        files.apply(append(1, 8, b"abc")).unwrap();
        let error = files.apply(append(1, 20, b"x")).unwrap_err().to_string();
        assert!(error.contains("continues segment 1 at 20, which has 11 bytes"), "{error}");
        assert!(files.apply(append(2, 20, b"x")).is_err(), "a segment begins with its head");
    }

    #[test]
    fn captures_that_are_nowhere_else_are_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        clear(dir.path(), "cluster a, shard 0").unwrap();
        segment::create(dir.path(), SegmentId::of_number(1)).unwrap();
        let error = clear(dir.path(), "cluster b, shard 0").unwrap_err().to_string();
        assert!(
            error.contains("not those of cluster b, shard 0 (CLUSTER has cluster a, shard 0)"),
            "{error}"
        );
        clear(dir.path(), "cluster a, shard 0").unwrap();
        assert!(segment::list(dir.path()).unwrap().is_empty());

        let own = tempfile::tempdir().unwrap();
        segment::create(own.path(), SegmentId::of_number(1)).unwrap();
        assert!(matches!(clear(own.path(), "cluster a, shard 0"), Err(RestoreError::NotACache { .. })));
        assert_eq!(segment::list(own.path()).unwrap().len(), 1);
    }
}

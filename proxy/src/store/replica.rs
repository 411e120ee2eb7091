//! The copy of a store in a cluster: rebuilding the data directory from it, and the state of the copy.
//!
//! In a cluster, the data directory is a cache. A node that becomes the holder of a shard fetches the closed segments from
//! object storage, if there is one, and writes the rest from the shard's log.

mod archiver;
mod files;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rolltap_cluster::log::{LogError, ShardLog};
use rolltap_cluster::objects::{ArchiveError, ObjectStorage, SegmentArchive, SegmentObject};
use rolltap_cluster::publisher::{LogCondition, Publisher};
use rolltap_cluster::{Cluster, ClusterError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::archiver::Archiver;
pub(crate) use self::archiver::{ArchiveTask, SegmentArchiving};
use self::files::{SegmentFiles, clear};
use super::format::segment::{self, SegmentId};
use super::health::{Health, Part};
use super::lock::DirLock;
use super::{OpenedStore, Store, StoreError, StoreSettings};

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
    /// The object storage cannot be used.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
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
    /// Whether NATS or the object storage failed, which may pass.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Cluster(_) | Self::Log(LogError::Cluster(_)) => true,
            Self::Archive(error) => error.is_transient(),
            _ => false,
        }
    }
}

/// Where the closed segments of a shard are kept, and how old a segment gets before it is closed.
#[derive(Clone, Debug)]
pub struct ArchiveSettings {
    /// The object storage.
    pub storage: ObjectStorage,
    /// A segment that is open for this time is closed before the next record.
    pub segment_age: Duration,
}

/// A data directory with the captures of a shard, whose log this node may append to.
#[derive(Debug)]
pub(crate) struct Restored {
    lock: DirLock,
    publisher: Publisher,
    archiver: Option<Archiver>,
    /// The number of segments.
    pub(crate) segments: usize,
    /// The bytes of all segments.
    pub(crate) bytes: u64,
}

/// The shard that a node restores, and the epoch of its lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardEpoch {
    pub(crate) shard: u32,
    pub(crate) epoch: u64,
}

impl Restored {
    /// Fetches the closed segments and reads the log of a shard into the data directory, and fences its previous holders.
    pub(crate) async fn restore(
        cluster: &Cluster,
        of: ShardEpoch,
        archive: Option<&ArchiveSettings>,
        data_dir: &Path,
    ) -> Result<Self, RestoreError> {
        let ShardEpoch { shard, epoch } = of;
        let cannot = |source| RestoreError::Write { path: data_dir.to_owned(), source };
        let lock = DirLock::take(data_dir)?;
        let claimed = match archive {
            Some(settings) => {
                let age = settings.segment_age;
                let mut archive = SegmentArchive::open(&settings.storage, cluster.id(), shard).await?;
                // From here on, a previous holder adds no segment, and therefore removes nothing from the log.
                archive.claim(epoch).await?;
                Some((archive, age))
            }
            None => None,
        };
        let manifest = claimed.as_ref().and_then(|(archive, _)| archive.manifest());
        let archived: Vec<SegmentObject> =
            manifest.map(|manifest| manifest.segments.clone()).unwrap_or_default();
        let archived_through = manifest.map_or(0, |manifest| manifest.log_sequence);
        clear(data_dir, &format!("cluster {} ({}), shard {shard}", cluster.name(), cluster.id()), &archived)?;
        if let Some((archive, _)) = &claimed {
            fetch(archive, &archived, data_dir).await?;
        }
        let log = ShardLog::open(cluster, shard).await?.after(archived_through);
        let mut files = SegmentFiles::new(data_dir, archived.first().map(|object| object.number));
        let publisher = Publisher::claim(log, epoch, |sequence, entry| files.apply(sequence, entry)).await?;
        files.finish().map_err(cannot)?;
        let segments = segment::list(data_dir).map_err(cannot)?;
        let sizes = segments.iter().map(|id| id.path(data_dir).metadata().map(|file| file.len()));
        let bytes = sizes.sum::<io::Result<u64>>().map_err(cannot)?;
        let archiver = claimed.map(|(archive, segment_age)| Archiver {
            archive,
            epoch,
            dir: data_dir.to_owned(),
            trimmer: publisher.trimmer(),
            closed: files.closed(&archived),
            segment_age,
        });
        Ok(Self { lock, publisher, archiver, segments: segments.len(), bytes })
    }

    /// Opens the store. Its records go to the log of the shard too. Also returns the task that uploads closed segments, which
    /// ends some time after the store. Requires a tokio runtime.
    pub(crate) fn open(
        self,
        data_dir: &Path,
        settings: StoreSettings,
    ) -> Result<(OpenedStore, Option<JoinHandle<()>>), StoreError> {
        let Self { lock, publisher, archiver, .. } = self;
        let condition = publisher.condition();
        let archived = archiver.as_ref().and_then(Archiver::latest);
        let (archiving, task) = archiver.map(Archiver::start).unzip();
        let copy = StoreCopy { publisher, archiving, archived };
        let opened = Store::open_locked(lock, data_dir, settings, Some(copy))?;
        tokio::spawn(show(condition, opened.store.health()));
        Ok((opened, task))
    }
}

/// The copy of a store: the log of its shard, and the object storage for its closed segments.
#[derive(Debug)]
pub(crate) struct StoreCopy {
    pub(crate) publisher: Publisher,
    /// `None` without object storage.
    pub(crate) archiving: Option<SegmentArchiving>,
    /// The last segment in object storage, which nothing may be appended to.
    pub(crate) archived: Option<SegmentId>,
}

impl StoreCopy {
    /// Passes a task to the archiver, if there is object storage.
    pub(crate) fn archive(&self, task: impl FnOnce(&Publisher) -> ArchiveTask) {
        if let Some(archiving) = &self.archiving {
            // The archiver has ended if a later holder has the shard.
            let _ = archiving.tasks.send(task(&self.publisher));
        }
    }
}

/// Fetches the segments that the data directory does not have.
async fn fetch(
    archive: &SegmentArchive,
    segments: &[SegmentObject],
    data_dir: &Path,
) -> Result<(), ArchiveError> {
    for object in segments {
        let path = SegmentId::of_number(object.number).path(data_dir);
        if !path.exists() {
            archive.fetch(object, &path, &mut |_| {}).await?;
        }
    }
    Ok(())
}

/// Shows the condition of the copy in the health of the store, until either ends.
async fn show(mut condition: watch::Receiver<LogCondition>, health: Health) {
    loop {
        let current = condition.borrow_and_update().clone();
        match current {
            LogCondition::Well => health.is_well(Part::Log),
            LogCondition::Failing(reason) => health.fails(Part::Log, StoreError::Replicate(reason)),
            LogCondition::Fenced => {
                return health.ends(StoreError::TakenOver("it appends to the log of the shard".to_owned()));
            }
        }
        if condition.changed().await.is_err() {
            return;
        }
    }
}

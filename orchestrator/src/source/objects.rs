//! Captures in object storage, which are read from copies of their segments.
//!
//! The copies of a shard are a data directory in the cache of the user, so that all that reads data directories reads them. A
//! copy that has the content of the manifest is not fetched again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{StreamExt, TryStreamExt};
use rolltap_cluster::objects::{
    ArchiveError, InvalidObjectsUrl, Manifest, ObjectStorage, ObjectsUrl, S3Settings, SegmentArchive,
    SegmentObject, Sha256, StorageError,
};
use rolltap_proxy::store::{segment_file_name, segment_numbers};

use crate::common::cache;

/// The number of segments that are fetched at the same time.
const AT_A_TIME: usize = 4;
/// The number of attempts to copy a shard whose segments are removed meanwhile.
const ATTEMPTS: usize = 3;

/// Why captures in object storage cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The place is written wrongly.
    #[error(transparent)]
    Url(#[from] InvalidObjectsUrl),
    /// The place cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The segments cannot be fetched.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The place has other shards.
    #[error("{url} has no shard {shard}: its shards are {}", listed(known))]
    NoShard {
        /// The place of all shards.
        url: String,
        /// The shard in the given place.
        shard: u32,
        /// The shards of the place.
        known: Vec<u32>,
    },
    /// No segment of the place is closed.
    #[error(
        "{0} has no segment yet: a proxy uploads a segment when it is full, and has the latest captures in its own --data"
    )]
    Empty(String),
    /// The place has several shards, and the command reads one data directory.
    #[error("{url} has the shards {}: give one of them, as {url}/shard-{}", listed(shards), .shards.first().unwrap_or(&0))]
    Several {
        /// The place of all shards.
        url: String,
        /// The numbers of the shards.
        shards: Vec<u32>,
    },
    /// There is no place for copies.
    #[error("no place for copies of the captures: neither XDG_CACHE_HOME nor HOME is set")]
    NoCache,
    /// A copy cannot be written.
    #[error("cannot write copies of the captures to {}", path.display())]
    Cache {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

fn listed(shards: &[u32]) -> String {
    shards.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl ObjectsError {
    /// Whether the same command may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Storage(error) => error.is_transient(),
            Self::Archive(error) => error.is_transient(),
            _ => false,
        }
    }
}

/// The bytes of a copy in progress.
#[derive(Debug, Default)]
pub struct CopyProgress {
    done: AtomicU64,
    all: AtomicU64,
}

impl CopyProgress {
    /// Returns the bytes that are fetched, and all bytes to fetch, as far as they are known.
    pub fn bytes(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed))
    }
}

/// The captures of one shard in a data directory.
#[derive(Debug)]
pub struct CopiedShard {
    /// The number of the shard.
    pub shard: u32,
    /// The data directory. Only its user can read it.
    pub dir: PathBuf,
}

/// Whether a path is meant as a place in object storage.
pub fn is_objects_url(path: &Path) -> bool {
    path.to_str().is_some_and(ObjectsUrl::is_meant_by)
}

/// Copies the closed segments of all shards at a place, or of one shard for `PLACE/shard-N`. The environment variables
/// of this process have the credentials of S3. Returns at least one shard.
///
/// # Errors
/// The place is invalid, cannot be used, or has no captures; or a copy cannot be written.
pub async fn copy(url: &str, progress: &CopyProgress) -> Result<Vec<CopiedShard>, ObjectsError> {
    let cache = cache::of_user().ok_or(ObjectsError::NoCache)?.join("objects");
    copy_to(url, &S3Settings::from_env(), &cache, progress).await
}

/// Copies the closed segments of one shard, as [`copy`] does.
///
/// # Errors
/// As [`copy`], and if the place has several shards.
pub async fn copy_one(url: &str, progress: &CopyProgress) -> Result<CopiedShard, ObjectsError> {
    let (place, _) = shard_at(url)?;
    let mut copied = copy(url, progress).await?;
    match copied.pop() {
        Some(only) if copied.is_empty() => Ok(only),
        last => {
            let shards = copied.iter().chain(&last).map(|copied| copied.shard).collect();
            Err(ObjectsError::Several { url: place.to_string(), shards })
        }
    }
}

/// Returns the place of all shards, and the shard if the URL is that of one.
fn shard_at(url: &str) -> Result<(ObjectsUrl, Option<u32>), ObjectsError> {
    let url: ObjectsUrl = url.parse()?;
    Ok(match url.split_shard() {
        Some((all, shard)) => (all, Some(shard)),
        None => (url, None),
    })
}

async fn copy_to(
    url: &str,
    settings: &S3Settings,
    cache: &Path,
    progress: &CopyProgress,
) -> Result<Vec<CopiedShard>, ObjectsError> {
    let (place, only) = shard_at(url)?;
    let mut archives = SegmentArchive::all(&ObjectStorage::open(&place, settings)?).await?;
    if let Some(shard) = only {
        let known = archives.iter().map(SegmentArchive::shard).collect();
        archives.retain(|archive| archive.shard() == shard);
        if archives.is_empty() {
            return Err(ObjectsError::NoShard { url: place.to_string(), shard, known });
        }
    }
    archives.retain(|archive| archive.manifest().is_some_and(|manifest| !manifest.segments.is_empty()));
    if archives.is_empty() {
        return Err(ObjectsError::Empty(url.to_owned()));
    }
    let mut copied = Vec::new();
    for mut archive in archives {
        let cluster = archive.manifest().map(|manifest| manifest.cluster).unwrap_or_default();
        // The same name can be a bucket of another server, but not one of the same cluster.
        let name = Sha256::of(format!("{place} {cluster}").as_bytes()).short();
        let dir = cache.join(name).join(format!("shard-{}", archive.shard()));
        copy_shard(&mut archive, &dir, progress).await?;
        copied.push(CopiedShard { shard: archive.shard(), dir });
    }
    Ok(copied)
}

async fn copy_shard(
    archive: &mut SegmentArchive,
    dir: &Path,
    progress: &CopyProgress,
) -> Result<(), ObjectsError> {
    let failed = |source| ObjectsError::Cache { path: dir.to_owned(), source };
    fs::create_dir_all(dir).map_err(failed)?;
    // Another command that copies the same shard would remove what this one writes.
    let lock = dir.with_extension("lock");
    let waits = || tracing::info!(lock = %lock.display(), "another rolltap copies the same captures");
    let _turn = cache::turn(lock.clone(), waits).await.map_err(failed)?;
    remove_partial(dir).map_err(failed)?;
    for attempt in 1.. {
        let manifest = archive.manifest().cloned();
        let Some(manifest) = manifest else { break };
        match copy_segments(archive, &manifest, dir, progress).await {
            // The retention of the segment ended meanwhile, so that a newer manifest does not have it.
            Err(ObjectsError::Archive(ArchiveError::Missing(_))) if attempt < ATTEMPTS => {
                archive.refresh().await?;
            }
            done => return done,
        }
    }
    Ok(())
}

/// Removes what a command left that was killed.
fn remove_partial(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(SegmentArchive::PARTIAL) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Makes the segments of a directory those of the manifest.
async fn copy_segments(
    archive: &SegmentArchive,
    manifest: &Manifest,
    dir: &Path,
    progress: &CopyProgress,
) -> Result<(), ObjectsError> {
    let failed = |source| ObjectsError::Cache { path: dir.to_owned(), source };
    for number in segment_numbers(dir).map_err(failed)? {
        if manifest.segment(number).is_none() {
            fs::remove_file(dir.join(segment_file_name(number))).map_err(failed)?;
        }
    }
    let mut wanted = Vec::new();
    for segment in &manifest.segments {
        let path = dir.join(segment_file_name(segment.number));
        let (copy, expected) = (path.clone(), segment.clone());
        let has = tokio::task::spawn_blocking(move || expected.is_copied_at(&copy)).await;
        if !has.map_err(io::Error::other).flatten().map_err(failed)? {
            progress.all.fetch_add(segment.bytes, Ordering::Relaxed);
            wanted.push((segment.clone(), path));
        }
    }
    let fetch = |(segment, path): (SegmentObject, PathBuf)| async move {
        let mut count = |bytes| {
            progress.done.fetch_add(bytes, Ordering::Relaxed);
        };
        archive.fetch(&segment, &path, &mut count).await
    };
    let fetched = futures_util::stream::iter(wanted.into_iter().map(fetch)).buffer_unordered(AT_A_TIME);
    Ok(fetched.try_collect().await?)
}

#[cfg(test)]
mod tests;

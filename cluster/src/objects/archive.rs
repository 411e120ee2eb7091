//! The segments of a shard in object storage.

use std::path::Path;
use std::time::Duration;

use uuid::Uuid;

use super::archive_error::ArchiveError;
use super::content::Content;
use super::directory::Condition;
use super::location::{folder_of, shard_of};
use super::manifest::{Manifest, SegmentObject};
use super::storage::ObjectStorage;
use super::transfer;

/// The number of attempts to write a manifest that another node changes meanwhile.
const ATTEMPTS: u32 = 8;
/// The number of reads until a manifest that is too old becomes an error, and the pause before the second one. Each further
/// pause is twice as long.
const READS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The segments of a shard in object storage. A holder writes with the epoch of its lease.
///
/// A segment is first uploaded and then committed, so that the manifest never has a segment without an object. A
/// segment is removed in the opposite order.
#[derive(Debug)]
pub struct SegmentArchive {
    storage: ObjectStorage,
    cluster: Uuid,
    shard: u32,
    /// The manifest that was read or written last. `None` before the first manifest of the shard is written.
    stored: Option<Stored>,
}

#[derive(Clone, Debug)]
struct Stored {
    manifest: Manifest,
    version: String,
}

impl SegmentArchive {
    /// The beginning of the name of a file that [`SegmentArchive::fetch`] writes, beside its destination. Such a file remains
    /// if the process dies.
    pub const PARTIAL: &str = transfer::PARTIAL;

    /// Opens the segments of a shard of the cluster with this identity, and reads their manifest, if it exists.
    ///
    /// # Errors
    /// The place cannot be used, or its manifest is of another cluster or another format.
    pub async fn open(storage: &ObjectStorage, cluster: Uuid, shard: u32) -> Result<Self, ArchiveError> {
        let mut archive = Self { storage: storage.clone(), cluster, shard, stored: None };
        archive.refresh().await?;
        Ok(archive)
    }

    /// Opens the segments of all shards at this place, to read them. Returns at least one.
    ///
    /// # Errors
    /// The place cannot be used or has no shard, or a manifest is of another format or another cluster than that of the first
    /// shard.
    pub async fn all(storage: &ObjectStorage) -> Result<Vec<Self>, ArchiveError> {
        let mut archives: Vec<Self> = Vec::new();
        let mut shards: Vec<u32> =
            storage.folders().await?.iter().filter_map(|name| shard_of(name)).collect();
        shards.sort_unstable();
        for shard in shards {
            let mut archive = Self { storage: storage.clone(), cluster: Uuid::nil(), shard, stored: None };
            let Some(stored) = archive.read().await? else { continue };
            archive.cluster = archives.first().map_or(stored.manifest.cluster, |first| first.cluster);
            archive.must_be_own(&stored.manifest)?;
            archive.stored = Some(stored);
            archives.push(archive);
        }
        if archives.is_empty() { Err(ArchiveError::NoShard(storage.url().to_string())) } else { Ok(archives) }
    }

    /// The number of the shard.
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// The manifest that was read or written last. `None` before the first one is written.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.stored.as_ref().map(|stored| &stored.manifest)
    }

    /// Reads the manifest again.
    ///
    /// # Errors
    /// The place cannot be used, the manifest is of another cluster or another format, or it remains older than one that this
    /// archive has read or written before.
    pub async fn refresh(&mut self) -> Result<Option<&Manifest>, ArchiveError> {
        let seen = self.manifest().map_or(0, |manifest| manifest.revision);
        let mut pause = FIRST_PAUSE;
        for read in 1.. {
            let stored = self.read().await?;
            if let Some(stored) = &stored {
                self.must_be_own(&stored.manifest)?;
            }
            let found = stored.as_ref().map_or(0, |stored| stored.manifest.revision);
            if found >= seen {
                self.stored = stored;
                break;
            }
            if read == READS {
                return Err(ArchiveError::OldManifest { url: self.url(), seen, found });
            }
            tracing::warn!(url = self.url(), seen, found, "the object storage returned an old manifest");
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Ok(self.manifest())
    }

    /// Uploads the closed segment in the file at `path`. An object with the same content is used as it is. The segment counts
    /// after [`SegmentArchive::commit`].
    ///
    /// # Errors
    /// The file cannot be read, the place cannot be used, or an object of this name has another content.
    pub async fn upload(&self, number: u32, path: &Path) -> Result<SegmentObject, ArchiveError> {
        let segment = |content: &Content| SegmentObject::new(number, content.bytes, content.sha256);
        let key = |content: &Content| format!("{}/{}", self.folder(), segment(content).key());
        Ok(segment(&transfer::upload(&self.storage, path, key).await?))
    }

    /// Writes the manifest with a new epoch. From then on, a holder of an earlier epoch can no longer write it.
    ///
    /// # Errors
    /// As [`SegmentArchive::commit`].
    pub async fn claim(&mut self, epoch: u64) -> Result<&Manifest, ArchiveError> {
        self.change(epoch, |_| Ok(())).await
    }

    /// Adds uploaded segments to the manifest. `log_sequence` is the sequence number of the last message of the log whose
    /// content is in the segments. A segment that the manifest has already changes nothing.
    ///
    /// # Errors
    /// The place cannot be used; a holder of a later epoch has written the manifest; the manifest has another content for the
    /// number of a segment. After an error, the manifest may have been written. A second call is safe.
    pub async fn commit(
        &mut self,
        epoch: u64,
        log_sequence: u64,
        added: &[SegmentObject],
    ) -> Result<&Manifest, ArchiveError> {
        let url = self.url();
        self.change(epoch, |manifest| {
            added.iter().try_for_each(|segment| add(manifest, segment, &url))?;
            manifest.log_sequence = manifest.log_sequence.max(log_sequence);
            Ok(())
        })
        .await
    }

    /// Removes segments from the manifest, and then their objects. A second call with the same segments removes the objects
    /// that the first one left after an error.
    ///
    /// # Errors
    /// As [`SegmentArchive::commit`].
    pub async fn remove(&mut self, epoch: u64, segments: &[SegmentObject]) -> Result<(), ArchiveError> {
        self.change(epoch, |manifest| {
            manifest.segments.retain(|segment| !segments.contains(segment));
            Ok(())
        })
        .await?;
        for segment in segments {
            self.storage.remove(&format!("{}/{}", self.folder(), segment.key())).await?;
        }
        Ok(())
    }

    /// Writes the content of a segment to the file `destination`, which is there with its whole content or not at all.
    /// `progress` gets the bytes of each part as they arrive.
    ///
    /// # Errors
    /// The file cannot be written, the place cannot be used, or the object is missing or damaged.
    pub async fn fetch(
        &self,
        segment: &SegmentObject,
        destination: &Path,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(), ArchiveError> {
        let key = format!("{}/{}", self.folder(), segment.key());
        let expected = Content { sha256: segment.sha256, bytes: segment.bytes };
        transfer::fetch(&self.storage, &key, &expected, destination, progress).await
    }

    /// Changes the manifest by a conditional write. If another node wrote it meanwhile, the change is applied to that one.
    async fn change(
        &mut self,
        epoch: u64,
        edit: impl Fn(&mut Manifest) -> Result<(), ArchiveError>,
    ) -> Result<&Manifest, ArchiveError> {
        let url = self.url();
        let contended = || ArchiveError::Contended(url.clone());
        for _ in 0..ATTEMPTS {
            let before =
                self.manifest().cloned().unwrap_or_else(|| Manifest::empty(self.cluster, self.shard));
            if before.epoch > epoch {
                return Err(ArchiveError::Superseded { url: self.url(), stored: before.epoch, own: epoch });
            }
            let mut after = before.clone();
            after.epoch = epoch;
            edit(&mut after)?;
            if after == before && self.stored.is_some() {
                return self.manifest().ok_or_else(contended);
            }
            after.revision += 1;
            let condition = self.stored.as_ref().map(|stored| Condition::Version(stored.version.clone()));
            let condition = condition.unwrap_or(Condition::Absent);
            if let Some(version) = self.storage.write(&self.key(), after.encode().into(), condition).await? {
                let stored = self.stored.insert(Stored { manifest: after, version });
                return Ok(&stored.manifest);
            }
            // Either another node wrote the manifest, or the answer to the own write was lost and the write repeated. In the
            // second case, the next pass has nothing to change.
            self.refresh().await?;
        }
        Err(contended())
    }

    async fn read(&self) -> Result<Option<Stored>, ArchiveError> {
        let Some((bytes, version)) = self.storage.read(&self.key()).await? else { return Ok(None) };
        let unusable = |source| ArchiveError::Manifest { url: self.url(), source };
        let manifest = Manifest::parse(&bytes, self.shard).map_err(unusable)?;
        Ok(Some(Stored { manifest, version }))
    }

    fn must_be_own(&self, manifest: &Manifest) -> Result<(), ArchiveError> {
        let (expected, found) = (self.cluster, manifest.cluster);
        if expected == found {
            return Ok(());
        }
        Err(ArchiveError::ForeignCluster { url: self.url(), expected, found })
    }

    fn folder(&self) -> String {
        folder_of(self.shard)
    }

    fn key(&self) -> String {
        format!("{}/manifest.json", self.folder())
    }

    fn url(&self) -> String {
        self.storage.place_of(&self.key())
    }
}

fn add(manifest: &mut Manifest, segment: &SegmentObject, url: &str) -> Result<(), ArchiveError> {
    match manifest.segments.binary_search_by_key(&segment.number, |stored| stored.number) {
        Err(index) => manifest.segments.insert(index, segment.clone()),
        Ok(index) => {
            let stored = manifest.segments.get(index).map_or(segment.sha256, |stored| stored.sha256);
            if stored != segment.sha256 {
                let (url, number) = (url.to_owned(), segment.number);
                return Err(ArchiveError::Conflict { url, number, stored, given: segment.sha256 });
            }
        }
    }
    Ok(())
}

//! Why segments cannot be stored or fetched.

use std::path::PathBuf;

use uuid::Uuid;

use super::digest::Sha256;
use super::manifest::ManifestError;
use super::refusal::StorageError;

/// Why segments cannot be stored or fetched.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The place cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The place has no shard at all.
    #[error(
        "{0} has no captures of a cluster: expected shard-0/manifest.json below it, found nothing; give the place \
         that the proxies of the cluster write to, with its prefix"
    )]
    NoShard(String),
    /// The manifest is no manifest of this format.
    #[error("{url} cannot be used: {source}")]
    Manifest {
        /// The manifest.
        url: String,
        /// The problem.
        source: ManifestError,
    },
    /// Another cluster has written the manifest.
    #[error(
        "two clusters write to this place: {url} is of the cluster {found}, and this is the cluster {expected}; give each \
         cluster a bucket or a prefix of its own"
    )]
    ForeignCluster {
        /// The manifest.
        url: String,
        /// The identity of this cluster, or of another shard at this place.
        expected: Uuid,
        /// The identity in the manifest.
        found: Uuid,
    },
    /// The server returned a manifest that is older than one that it returned before.
    #[error(
        "old manifest returned: {url} has revision {found}, after revision {seen}; the server must return what was written \
         last, so check that it is no cache and no copy that is behind"
    )]
    OldManifest {
        /// The manifest.
        url: String,
        /// The highest revision before.
        seen: u64,
        /// The revision now. 0 if the manifest no longer exists.
        found: u64,
    },
    /// A holder of a later epoch has written the manifest.
    #[error("{url} has epoch {stored}, so a holder in epoch {own} can no longer write it")]
    Superseded {
        /// The manifest.
        url: String,
        /// The epoch of the manifest.
        stored: u64,
        /// The epoch of the holder that wanted to write.
        own: u64,
    },
    /// The manifest changed with each attempt to write it.
    #[error("{0} changes all the time: several nodes write it in one epoch")]
    Contended(String),
    /// The manifest has the segment with another content.
    #[error("segment {number} of {url} has the SHA-256 {stored}, and cannot be replaced by one with {given}")]
    Conflict {
        /// The manifest.
        url: String,
        /// The number of the segment.
        number: u32,
        /// The checksum in the manifest.
        stored: Sha256,
        /// The checksum of the segment that was to be added.
        given: Sha256,
    },
    /// The manifest has a segment that does not exist.
    #[error(
        "{0} does not exist, but the manifest had it; if its retention just ended, another try reads the new manifest"
    )]
    Missing(String),
    /// An object that somebody named does not exist.
    #[error("{0} does not exist; it was removed, or the place is another one than that of its writer")]
    NoObject(String),
    /// An object does not have the content that the manifest describes.
    #[error(
        "{url} is damaged: expected {expected_bytes} bytes with the SHA-256 {expected}, found {found_bytes} bytes{}; \
         restore the object from a backup, or an earlier version of it",
        .found.map(|found| format!(" with {found}")).unwrap_or_default()
    )]
    Damaged {
        /// The object.
        url: String,
        /// The size in the manifest.
        expected_bytes: u64,
        /// The checksum in the manifest.
        expected: Sha256,
        /// The size of the object.
        found_bytes: u64,
        /// The checksum of the object. `None` if it was not computed, because the size is wrong.
        found: Option<Sha256>,
    },
    /// A local file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// A verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl ArchiveError {
    /// Whether the same call may succeed later without a change of the settings.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Storage(error) => error.is_transient(),
            Self::OldManifest { .. } | Self::Contended(_) => true,
            _ => false,
        }
    }
}

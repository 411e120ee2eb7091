//! Closed segments of shards and files of jobs in object storage, with the S3 protocol or in a directory.
//!
//! ```text
//! PREFIX/shard-0/manifest.json
//! PREFIX/shard-0/segments/00000001-0123456789abcdef.rolltap
//! PREFIX/work/{jobs,tasks,trials}/SHA256
//! ```
//!
//! An object with a segment is written once, and its key has the beginning of its SHA-256. The manifest of a shard lists the
//! segments. It is replaced by conditional writes alone, so that two writers never overwrite each other's manifest, and a
//! holder of an earlier epoch is refused ([`SegmentArchive::claim`]).

mod archive;
mod archive_error;
mod content;
mod digest;
mod directory;
mod files;
mod http;
mod location;
mod manifest;
mod refusal;
mod s3;
mod settings;
mod storage;
mod transfer;

pub use archive::SegmentArchive;
pub use archive_error::ArchiveError;
pub use content::Content;
pub use digest::{InvalidSha256, Sha256, Sha256Hasher};
pub use files::FileStore;
pub use location::{InvalidObjectsUrl, ObjectsUrl};
pub use manifest::{Manifest, ManifestError, SegmentObject};
pub use refusal::StorageError;
pub use settings::{MissingVariable, S3Settings};
pub use storage::ObjectStorage;

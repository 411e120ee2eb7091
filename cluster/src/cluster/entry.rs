//! Conditional writes to the entries of a key-value bucket.

use std::time::Duration;

use async_nats::jetstream::kv::{CreateErrorKind, Store, UpdateErrorKind};
use bytes::Bytes;
use tokio::time::timeout;

/// The result of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The entry has this revision.
    Done(u64),
    /// The entry has another revision than expected.
    Conflict,
}

/// Writes an entry if it has this revision, or creates it for revision 0.
///
/// # Errors
/// Fails with the reason if NATS refuses, or does not answer within `patience`. The write may have succeeded.
pub(crate) async fn write(
    bucket: &Store,
    key: &str,
    value: Bytes,
    revision: u64,
    patience: Duration,
) -> Result<Written, String> {
    let silent = |_| format!("no answer in {patience:?}");
    if revision == 0 {
        return match timeout(patience, Box::pin(bucket.create(key, value))).await.map_err(silent)? {
            Ok(revision) => Ok(Written::Done(revision)),
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(Written::Conflict),
            Err(error) => Err(error.to_string()),
        };
    }
    match timeout(patience, Box::pin(bucket.update(key, value, revision))).await.map_err(silent)? {
        Ok(revision) => Ok(Written::Done(revision)),
        Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(Written::Conflict),
        Err(error) => Err(error.to_string()),
    }
}

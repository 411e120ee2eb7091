//! Files on their way to an object and back.

use std::io::Write;
use std::path::Path;

use bytes::Bytes;
use futures_util::TryStreamExt;
use tempfile::NamedTempFile;

use super::archive_error::ArchiveError;
use super::content::Content;
use super::digest::{Sha256, Sha256Hasher};
use super::directory::Condition;
use super::storage::ObjectStorage;

/// Writes the content of a file as an object, unless the object exists with this content. `key` gives the key of a content.
pub(super) async fn upload(
    storage: &ObjectStorage,
    path: &Path,
    key: impl FnOnce(&Content) -> String,
) -> Result<Content, ArchiveError> {
    let from = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let bytes = std::fs::read(from)?;
        let sha256 = Sha256::of(&bytes);
        Ok((Bytes::from(bytes), sha256))
    });
    let read = read.await.map_err(std::io::Error::other).flatten();
    let (bytes, sha256) = read.map_err(|source| of_file("read", path, source))?;
    let content = Content { bytes: bytes.len() as u64, sha256 };
    let key = key(&content);
    if storage.write(&key, bytes, Condition::Absent).await?.is_none() {
        // An earlier attempt, or an earlier holder, wrote the object. Its name has a part of the checksum only.
        verify(storage, &key, &content).await?;
    }
    Ok(content)
}

/// Reads an object, and compares its content with what is expected.
async fn verify(storage: &ObjectStorage, key: &str, expected: &Content) -> Result<(), ArchiveError> {
    read(storage, key, expected, |_| Ok(())).await
}

/// The beginning of the name of a file that is being fetched. Such a file remains if the process dies.
pub(super) const PARTIAL: &str = ".fetch-";

/// Writes the content of an object as a file, which is there with its whole content or not at all. `progress` gets the bytes
/// of each part.
pub(super) async fn fetch(
    storage: &ObjectStorage,
    key: &str,
    expected: &Content,
    destination: &Path,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<(), ArchiveError> {
    let failed = |source| of_file("write", destination, source);
    let dir = destination.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The file is for this user alone, because captures have prompts and answers.
    let mut file = tempfile::Builder::new().prefix(PARTIAL).tempfile_in(dir).map_err(failed)?;
    read(storage, key, expected, |part| {
        // A part is small, so that it blocks the thread for a short time only.
        file.write_all(part).map_err(failed)?;
        progress(part.len() as u64);
        Ok(())
    })
    .await?;
    let to = destination.to_owned();
    let persisted = tokio::task::spawn_blocking(move || persist(file, &to)).await;
    persisted.map_err(std::io::Error::other).flatten().map_err(failed)
}

fn persist(file: NamedTempFile, destination: &Path) -> std::io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(destination)?;
    Ok(())
}

/// Reads an object in parts, and fails if its content is another one than expected.
async fn read(
    storage: &ObjectStorage,
    key: &str,
    expected: &Content,
    mut take: impl FnMut(&[u8]) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let missing = || ArchiveError::Missing(storage.place_of(key));
    let (size, mut parts) = storage.parts(key).await?.ok_or_else(missing)?;
    let damaged = |found_bytes, found| ArchiveError::Damaged {
        url: storage.place_of(key),
        expected_bytes: expected.bytes,
        expected: expected.sha256,
        found_bytes,
        found,
    };
    if size != expected.bytes {
        return Err(damaged(size, None));
    }
    let (mut hasher, mut bytes) = (Sha256Hasher::default(), 0);
    while let Some(part) = parts.try_next().await? {
        hasher.update(&part);
        bytes += part.len() as u64;
        take(&part)?;
    }
    let found = hasher.finish();
    if bytes == expected.bytes && found == expected.sha256 {
        Ok(())
    } else {
        Err(damaged(bytes, Some(found)))
    }
}

fn of_file(action: &'static str, path: &Path, source: std::io::Error) -> ArchiveError {
    ArchiveError::File { action, path: path.to_owned(), source }
}

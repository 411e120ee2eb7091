//! A place for objects, and the few operations that rolltap needs.

use std::io::{self, ErrorKind};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};

use super::directory::{Condition, Directory};
use super::location::{Location, ObjectsUrl};
use super::refusal::StorageError;
use super::s3::{Parts, S3};
use super::settings::S3Settings;

/// The bytes of one read of a file.
const PART: usize = 1 << 20;

/// A place for objects. Its clones share the connections.
#[derive(Clone, Debug)]
pub struct ObjectStorage {
    url: ObjectsUrl,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    S3(S3),
    Directory(Directory),
}

impl ObjectStorage {
    /// Opens a place. No request is sent.
    ///
    /// # Errors
    /// A variable of S3 is missing or wrong.
    pub fn open(url: &ObjectsUrl, settings: &S3Settings) -> Result<Self, StorageError> {
        let place = match &url.0 {
            Location::Directory(dir) => Place::Directory(Directory::new(dir.clone())),
            Location::S3 { bucket, prefix } => {
                let missing = |source| StorageError::Settings { url: url.clone(), source };
                settings.require_credentials().map_err(missing)?;
                let unusable = |error| StorageError::of_s3(format!("use {url}"), &error);
                Place::S3(S3::new(bucket, prefix, settings).map_err(unusable)?)
            }
        };
        Ok(Self { url: url.clone(), place })
    }

    /// The place, as the user wrote it.
    pub fn url(&self) -> &ObjectsUrl {
        &self.url
    }

    /// The URL of an object.
    pub(super) fn place_of(&self, key: &str) -> String {
        format!("{}/{key}", self.url)
    }

    /// Returns an object with its version, or `None` if there is none.
    pub(super) async fn read(&self, key: &str) -> Result<Option<(Bytes, String)>, StorageError> {
        let action = format!("read {}", self.place_of(key));
        match &self.place {
            Place::S3(s3) => s3.read(key, action).await,
            Place::Directory(directory) => {
                let read = blocking(directory, key, action, Directory::read).await?;
                Ok(read.map(|(bytes, version)| (bytes.into(), version)))
            }
        }
    }

    /// Writes an object. Returns its version, or `None` if the condition does not hold. A lost connection can have the effect
    /// that `None` is the answer to a repetition of a write that succeeded.
    pub(super) async fn write(
        &self,
        key: &str,
        bytes: Bytes,
        condition: Condition,
    ) -> Result<Option<String>, StorageError> {
        let action = format!("write {}", self.place_of(key));
        match &self.place {
            Place::S3(s3) => s3.write(key, bytes, condition, action).await,
            Place::Directory(directory) => {
                let write = move |directory: &Directory, key: &str| directory.write(key, &bytes, &condition);
                blocking(directory, key, action, write).await
            }
        }
    }

    /// Reads an object in parts. `None` if there is none.
    pub(super) async fn parts(&self, key: &str) -> Result<Option<Parts>, StorageError> {
        let action = format!("read {}", self.place_of(key));
        let directory = match &self.place {
            Place::S3(s3) => return s3.parts(key, action).await,
            Place::Directory(directory) => directory,
        };
        let failed = move |error: io::Error| StorageError::of_system(action.clone(), &error);
        let file = match tokio::fs::File::open(directory.path(key)).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(&failed)?,
        };
        let size = file.metadata().await.map_err(&failed)?.len();
        let parts = tokio_util::io::ReaderStream::with_capacity(file, PART).map_err(failed);
        Ok(Some((size, parts.boxed())))
    }

    /// Removes an object, if it exists.
    pub(super) async fn remove(&self, key: &str) -> Result<(), StorageError> {
        let action = format!("remove {}", self.place_of(key));
        match &self.place {
            Place::S3(s3) => s3.remove(key, action).await,
            Place::Directory(directory) => blocking(directory, key, action, Directory::remove).await,
        }
    }

    /// Returns the names of the folders at the top, sorted.
    pub(super) async fn folders(&self) -> Result<Vec<String>, StorageError> {
        let action = format!("list {}", self.url);
        let mut names = match &self.place {
            Place::S3(s3) => s3.folders(action).await?,
            Place::Directory(directory) => {
                blocking(directory, "", action, |directory, _| directory.folders()).await?
            }
        };
        names.sort_unstable();
        Ok(names)
    }
}

/// Runs an operation that blocks on a thread for such operations.
async fn blocking<T: Send + 'static>(
    directory: &Directory,
    key: &str,
    action: String,
    operation: impl FnOnce(&Directory, &str) -> io::Result<T> + Send + 'static,
) -> Result<T, StorageError> {
    let (directory, key) = (directory.clone(), key.to_owned());
    let done = tokio::task::spawn_blocking(move || operation(&directory, &key)).await;
    done.map_err(io::Error::other).flatten().map_err(|error| StorageError::of_system(action, &error))
}

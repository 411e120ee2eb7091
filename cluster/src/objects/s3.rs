//! Objects on a server with the S3 protocol.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::path::Path;
use object_store::{
    BackoffConfig, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig,
    UpdateVersion,
};

use super::directory::Condition;
use super::http::Connector;
use super::refusal::{StorageError, is_missing_bucket, is_missing_object};
use super::settings::S3Settings;

/// Failed requests are repeated with growing pauses for this long, for a server that restarts.
const PATIENCE: Duration = Duration::from_secs(20);
const RETRIES: usize = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The longest time between two parts of an object that is read.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest object that is read into memory, in bytes.
const LARGEST: u64 = 64 << 20;
const NO_VERSION: &str = "the server sends no ETag, without which a manifest cannot be replaced safely";

/// The objects of a bucket below a prefix.
#[derive(Clone, Debug)]
pub(super) struct S3 {
    store: Arc<AmazonS3>,
    prefix: String,
}

/// The parts of an object with its size in bytes.
pub(super) type Parts = (u64, BoxStream<'static, Result<Bytes, StorageError>>);

impl S3 {
    pub(super) fn new(bucket: &str, prefix: &str, settings: &S3Settings) -> object_store::Result<Self> {
        let retry = RetryConfig {
            backoff: BackoffConfig { init_backoff: FIRST_PAUSE, max_backoff: LONGEST_PAUSE, base: 2.0 },
            max_retries: RETRIES,
            retry_timeout: PATIENCE,
        };
        let mut builder = AmazonS3Builder::new();
        for (key, value) in settings.values() {
            builder = builder.with_config(key.parse::<AmazonS3ConfigKey>()?, value);
        }
        let store = builder
            .with_bucket_name(bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            // Some servers do not have the request that removes several objects.
            .with_disable_bulk_delete(true)
            .with_http_connector(Connector::new(settings.endpoint(), settings.timeout))
            .with_retry(retry)
            .build()?;
        Ok(Self { store: Arc::new(store), prefix: prefix.to_owned() })
    }

    fn path(&self, key: &str) -> Path {
        Path::from(format!("{}/{key}", self.prefix))
    }

    /// Returns an object with its version, or `None` if there is none.
    pub(super) async fn read(
        &self,
        key: &str,
        action: String,
    ) -> Result<Option<(Bytes, String)>, StorageError> {
        let found = match self.store.get(&self.path(key)).await {
            Err(error) if is_missing_object(&error) => return Ok(None),
            Err(error) => return Err(StorageError::of_s3(action, &error)),
            Ok(found) => found,
        };
        let size = found.meta.size;
        if size > LARGEST {
            let problem = format!("it has {size} bytes, and at most {LARGEST} are read");
            return Err(StorageError::of_content(action, problem));
        }
        let Some(version) = found.meta.e_tag.clone() else {
            return Err(StorageError::of_content(action, NO_VERSION.to_owned()));
        };
        match tokio::time::timeout(READ_TIMEOUT, found.bytes()).await {
            Ok(Ok(bytes)) => Ok(Some((bytes, version))),
            Ok(Err(error)) => Err(StorageError::of_s3(action, &error)),
            Err(_) => Err(StorageError::silent(action)),
        }
    }

    /// Writes an object. Returns its version, or `None` if the condition does not hold.
    pub(super) async fn write(
        &self,
        key: &str,
        bytes: Bytes,
        condition: Condition,
        action: String,
    ) -> Result<Option<String>, StorageError> {
        let mode = match condition {
            Condition::Absent => PutMode::Create,
            Condition::Version(e_tag) => PutMode::Update(UpdateVersion { e_tag: Some(e_tag), version: None }),
        };
        let options = PutOptions { mode, ..PutOptions::default() };
        match self.store.put_opts(&self.path(key), PutPayload::from(bytes), options).await {
            Ok(written) => {
                let version = written.e_tag;
                let version = version.ok_or_else(|| StorageError::of_content(action, NO_VERSION.to_owned()));
                version.map(Some)
            }
            // Without the bucket, the client reports a condition that does not hold.
            Err(error) if is_missing_bucket(&error) => Err(StorageError::of_s3(action, &error)),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(None),
            Err(error) => Err(StorageError::of_s3(action, &error)),
        }
    }

    /// Reads an object in parts. `None` if there is none.
    pub(super) async fn parts(&self, key: &str, action: String) -> Result<Option<Parts>, StorageError> {
        let found = match self.store.get(&self.path(key)).await {
            Err(error) if is_missing_object(&error) => return Ok(None),
            Err(error) => return Err(StorageError::of_s3(action, &error)),
            Ok(found) => found,
        };
        let size = found.meta.size;
        let parts = futures_util::stream::try_unfold(found.into_stream(), move |mut parts| {
            let action = action.clone();
            async move {
                match tokio::time::timeout(READ_TIMEOUT, parts.try_next()).await {
                    Ok(Ok(part)) => Ok(part.map(|part| (part, parts))),
                    Ok(Err(error)) => Err(StorageError::of_s3(action, &error)),
                    Err(_) => Err(StorageError::silent(action)),
                }
            }
        });
        Ok(Some((size, parts.boxed())))
    }

    /// Removes an object, if it exists.
    pub(super) async fn remove(&self, key: &str, action: String) -> Result<(), StorageError> {
        match self.store.delete(&self.path(key)).await {
            Err(error) if !is_missing_object(&error) => Err(StorageError::of_s3(action, &error)),
            _ => Ok(()),
        }
    }

    /// Returns the names of the folders at the top.
    pub(super) async fn folders(&self, action: String) -> Result<Vec<String>, StorageError> {
        let top = (!self.prefix.is_empty()).then(|| Path::from(self.prefix.as_str()));
        let listed = self.store.list_with_delimiter(top.as_ref()).await;
        let listed = listed.map_err(|error| StorageError::of_s3(action, &error))?;
        let names = listed.common_prefixes.iter().filter_map(|folder| folder.filename());
        Ok(names.map(str::to_owned).collect())
    }
}

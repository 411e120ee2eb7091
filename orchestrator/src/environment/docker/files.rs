//! Copies files into and out of a container, as archives.

use std::path::Path;

use bollard::errors::Error;
use bollard::query_parameters::{DownloadFromContainerOptions, UploadToContainerOptions};
use futures_util::StreamExt;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio_util::io::ReaderStream;

use super::Container;
use crate::environment::transfer::archive::{self, Archive};
use crate::environment::transfer::fetch::{Exclusions, Fetched, unpack_path};
use crate::environment::transfer::unpack::{DOWNLOAD_BYTES, Destinations, Downloaded, unpack};
use crate::environment::{EnvironmentError, LogDirs, error};

/// Harbor's log directories with their modes.
const LOG_DIRECTORIES: [(&str, u32); 4] =
    [("logs", 0o755), ("logs/agent", 0o777), ("logs/verifier", 0o777), ("logs/artifacts", 0o777)];

impl Container {
    pub(in crate::environment) async fn upload(
        &self,
        contents: &[(&Path, &str)],
    ) -> Result<(), EnvironmentError> {
        let mut sent = false;
        let first = async {
            sent = true;
            self.put(contents, &LOG_DIRECTORIES).await
        };
        // If another caller is creating the directories, its closure runs instead of this one, and the files follow in
        // a request of their own.
        self.log_directories.get_or_try_init(|| first).await?;
        if sent { Ok(()) } else { self.put(contents, &[]).await }
    }

    /// Creates Harbor's log directories, writable for any user, before anything runs. A request with files costs the
    /// engine about 70 ms, so the directories are sent with the first files, if there are any.
    pub(super) async fn with_log_directories(&self) -> Result<(), EnvironmentError> {
        self.log_directories.get_or_try_init(|| self.put(&[], &LOG_DIRECTORIES)).await.copied()
    }

    /// Sends an archive whose names start at the root. The engine creates missing parent directories.
    async fn put(
        &self,
        contents: &[(&Path, &str)],
        directories: &'static [(&'static str, u32)],
    ) -> Result<(), EnvironmentError> {
        let insides: Vec<_> = contents.iter().map(|(_, inside)| *inside).collect();
        let insides = if insides.is_empty() { "/logs".to_owned() } else { insides.join(" and ") };
        let from_root = |(host_dir, inside): &(&Path, &str)| {
            (host_dir.to_path_buf(), inside.trim_matches('/').to_owned())
        };
        let contents: Vec<_> = contents.iter().map(from_root).collect();
        let archive = error::blocking(move || {
            let mut archive = Archive::new()?;
            for (name, mode) in directories {
                archive.directory(Path::new(name), *mode)?;
            }
            for (host_dir, prefix) in contents {
                archive.contents(&archive::walk(&host_dir)?, Path::new(&prefix))?;
            }
            archive.finish()
        });
        let body = bollard::body_try_stream(ReaderStream::new(tokio::fs::File::from_std(archive.await?)));
        let options =
            UploadToContainerOptions { path: "/".to_owned(), ..UploadToContainerOptions::default() };
        let put = self.api().upload_to_container(self.id(), Some(options), body).await;
        put.map_err(EnvironmentError::engine(format!("put files into {insides} of the container")))
    }

    pub(in crate::environment) async fn download(
        &self,
        inside: &str,
        host_dir: &Path,
    ) -> Result<Downloaded, EnvironmentError> {
        self.with_log_directories().await?;
        let archive = self.get_archive(inside).await?;
        let (inside, host_dir) = (inside.to_owned(), host_dir.to_owned());
        error::blocking(move || unpack(archive, &inside, &Destinations::one(&host_dir))).await
    }

    pub(in crate::environment) async fn fetch(
        &self,
        inside: &str,
        to: &Path,
        exclude: &[String],
    ) -> Result<Fetched, EnvironmentError> {
        self.with_log_directories().await?;
        let archive = self.get_archive(inside).await?;
        let (inside, to, exclude) = (inside.to_owned(), to.to_owned(), Exclusions::new(exclude));
        error::blocking(move || unpack_path(archive, &inside, &to, &exclude)).await
    }

    pub(in crate::environment) async fn download_logs(
        &self,
        to: &LogDirs,
    ) -> Result<Downloaded, EnvironmentError> {
        self.with_log_directories().await?;
        let archive = self.get_archive(&self.paths.logs).await?;
        let (inside, to) = (self.paths.logs.clone(), to.clone());
        error::blocking(move || unpack(archive, &inside, &Destinations::of_logs(&to))).await
    }

    async fn get_archive(&self, inside: &str) -> Result<std::fs::File, EnvironmentError> {
        let temporary =
            |source| EnvironmentError::Io { action: "write to", path: std::env::temp_dir(), source };
        let mut file = tokio::fs::File::from_std(tempfile::tempfile().map_err(temporary)?);
        let options = DownloadFromContainerOptions { path: inside.to_owned() };
        let mut chunks = self.api().download_from_container(self.id(), Some(options));
        let mut bytes = 0;
        while let Some(chunk) = chunks.next().await {
            let chunk = match chunk {
                Err(Error::DockerResponseServerError { status_code: 404, .. }) => {
                    return Err(EnvironmentError::NoSuchPath(inside.to_owned()));
                }
                chunk => {
                    chunk.map_err(EnvironmentError::engine(format!("read {inside} of the container")))?
                }
            };
            bytes += chunk.len() as u64;
            // The limit applies to the stream, before the archive can fill the disk.
            if bytes > DOWNLOAD_BYTES {
                let limit = format!("{DOWNLOAD_BYTES} bytes");
                return Err(EnvironmentError::TooLarge { inside: inside.to_owned(), limit });
            }
            file.write_all(&chunk).await.map_err(temporary)?;
        }
        file.flush().await.map_err(temporary)?;
        file.rewind().await.map_err(temporary)?;
        Ok(file.into_std().await)
    }
}

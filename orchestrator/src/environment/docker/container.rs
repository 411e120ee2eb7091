//! One container per trial: started, given files, asked for files, removed.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptions, DownloadFromContainerOptions, InspectContainerOptions, LogsOptionsBuilder,
    StartContainerOptions, UploadToContainerOptions,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;
use uuid::Uuid;

use super::Job;
use super::cleanup::remove_container;
use super::engine::Engine;
use super::exec::assignments;
use super::image::Image;
use super::labels::unique_name;
use crate::environment::archive::{self, DOWNLOAD_BYTES, Downloaded};
use crate::environment::output::Tail;
use crate::environment::{EnvironmentError, Paths, TrialLabel, error};
use crate::task::Task;

/// Processes and threads of one container: no honest work needs more, and a fork bomb stops at it.
const PIDS: i64 = 4096;
/// What keeps a container up. The image's entrypoint runs before it, as with Harbor; old busybox knows no `infinity`.
const FOREVER: [&str; 3] = ["sh", "-c", "sleep infinity || tail -f /dev/null"];
const MEBIBYTE: i64 = 1024 * 1024;

/// A running container.
pub struct Container {
    job: Arc<Job>,
    id: String,
    paths: Paths,
    image_user: String,
    agent_user: Option<String>,
}

impl fmt::Debug for Container {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Container").field("id", &self.id).field("paths", &self.paths).finish()
    }
}

impl Image {
    /// Starts a container for one trial. Nothing is left behind if that fails.
    pub(in crate::environment) async fn start(
        &self,
        task: &Task,
        trial: &TrialLabel,
    ) -> Result<Container, EnvironmentError> {
        let name = unique_name(&trial.0, Uuid::now_v7());
        let options = CreateContainerOptions { name: Some(name), ..CreateContainerOptions::default() };
        let created =
            self.job.engine.api.create_container(Some(options), self.description(task, trial)).await;
        let image = &self.facts.name;
        let id =
            created.map_err(EnvironmentError::engine(format!("create a container of image {image}")))?.id;
        let container = Container {
            job: Arc::clone(&self.job),
            id,
            paths: Paths::below("", &self.workdir),
            image_user: self.facts.user.clone(),
            agent_user: task.config.agent.user.clone(),
        };
        match container.bring_up().await {
            Ok(()) => Ok(container),
            Err(error) => {
                if let Err(left) = container.stop().await {
                    tracing::warn!(error = %left, "a container that did not start is left until the job ends");
                }
                Err(error)
            }
        }
    }

    fn description(&self, task: &Task, trial: &TrialLabel) -> ContainerCreateBody {
        let config = &task.config.environment;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "task.toml's cpus are checked to be positive and below 1e9"
        )]
        let nano_cpus = config.cpus.map(|cpus| (cpus * 1e9) as i64);
        ContainerCreateBody {
            image: Some(self.facts.name.clone()),
            cmd: Some(FOREVER.map(str::to_owned).to_vec()),
            working_dir: Some(self.workdir.clone()),
            env: Some(assignments(config.env.clone())),
            labels: Some(self.job.labels.of_trial(trial)),
            host_config: Some(HostConfig {
                init: Some(true),
                nano_cpus,
                memory: config.memory_mb.map(|mebibytes| {
                    i64::try_from(mebibytes).unwrap_or(i64::MAX / MEBIBYTE).saturating_mul(MEBIBYTE)
                }),
                pids_limit: Some(PIDS),
                network_mode: Some(self.job.network.name.clone()),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        }
    }
}

impl Container {
    /// Harbor's log directories, for any user, are there before the first process.
    async fn bring_up(&self) -> Result<(), EnvironmentError> {
        let logs = log_directories().map_err(EnvironmentError::io("pack", "/logs"))?;
        self.put_archive(stream::iter([Ok(Bytes::from(logs))]), "/logs").await?;
        let started = self.api().start_container(&self.id, None::<StartContainerOptions>).await;
        started.map_err(EnvironmentError::engine(format!("start container {}", self.id)))
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.job.engine
    }

    pub(super) fn api(&self) -> &Docker {
        &self.job.engine.api
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The image's `USER`; empty for root.
    pub(super) fn image_user(&self) -> &str {
        &self.image_user
    }

    /// Who sits at the terminal; none for the image's user.
    pub(super) fn agent_user(&self) -> Option<&str> {
        self.agent_user.as_deref()
    }

    pub(in crate::environment) fn paths(&self) -> &Paths {
        &self.paths
    }

    pub(in crate::environment) async fn upload(
        &self,
        host_dir: &Path,
        inside: &str,
    ) -> Result<(), EnvironmentError> {
        let (host_dir, prefix) = (host_dir.to_owned(), inside.trim_matches('/').to_owned());
        let archive = error::blocking(move || {
            let entries = archive::walk(&host_dir)?;
            archive::pack(&entries, Path::new(&prefix))
        });
        let archive = tokio::fs::File::from_std(archive.await?);
        self.put_archive(ReaderStream::new(archive), inside).await
    }

    /// Names in the archive count from the root: the engine makes directories that are missing on the way.
    async fn put_archive(
        &self,
        archive: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
        inside: &str,
    ) -> Result<(), EnvironmentError> {
        let options =
            UploadToContainerOptions { path: "/".to_owned(), ..UploadToContainerOptions::default() };
        let body = bollard::body_try_stream(archive);
        let put = self.api().upload_to_container(&self.id, Some(options), body).await;
        put.map_err(EnvironmentError::engine(format!("put files into {inside} of the container")))
    }

    pub(in crate::environment) async fn download(
        &self,
        inside: &str,
        host_dir: &Path,
    ) -> Result<Downloaded, EnvironmentError> {
        let archive = self.get_archive(inside).await?;
        let (inside, host_dir) = (inside.to_owned(), host_dir.to_owned());
        error::blocking(move || archive::unpack(archive, &inside, &host_dir)).await
    }

    async fn get_archive(&self, inside: &str) -> Result<std::fs::File, EnvironmentError> {
        let temporary =
            |source| EnvironmentError::Io { action: "write to", path: std::env::temp_dir(), source };
        let mut file = tokio::fs::File::from_std(tempfile::tempfile().map_err(temporary)?);
        let options = DownloadFromContainerOptions { path: inside.to_owned() };
        let mut chunks = self.api().download_from_container(&self.id, Some(options));
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
            if bytes > DOWNLOAD_BYTES {
                let limit = format!("{DOWNLOAD_BYTES} bytes");
                return Err(EnvironmentError::TooLarge { inside: inside.to_owned(), limit });
            }
            file.write_all(&chunk).await.map_err(temporary)?;
        }
        file.flush().await.map_err(temporary)?;
        tokio::io::AsyncSeekExt::rewind(&mut file).await.map_err(temporary)?;
        Ok(file.into_std().await)
    }

    /// Why nothing can be run in it any more.
    pub(super) async fn ended(&self) -> EnvironmentError {
        let inspected = self.api().inspect_container(&self.id, None::<InspectContainerOptions>).await;
        let exit_code = inspected.ok().and_then(|container| container.state?.exit_code);
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).tail("20").build();
        let mut logs = self.api().logs(&self.id, Some(options));
        let mut tail = Tail::default();
        while let Some(Ok(line)) = logs.next().await {
            tail.push(&String::from_utf8_lossy(line.as_ref()));
        }
        EnvironmentError::Ended { exit_code, tail: tail.text() }
    }

    /// Kills it at once: nothing inside is worth a grace.
    pub(in crate::environment) async fn stop(&self) -> Result<(), EnvironmentError> {
        let removed = remove_container(self.api(), &self.id).await;
        removed.map_err(EnvironmentError::engine(format!("remove container {}", self.id)))
    }
}

fn log_directories() -> std::io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, mode) in
        [("logs", 0o755), ("logs/agent", 0o777), ("logs/verifier", 0o777), ("logs/artifacts", 0o777)]
    {
        archive::append_directory(&mut builder, Path::new(name), mode, 0)?;
    }
    builder.into_inner()
}

//! One container per trial: its creation, start, inspection and removal.

use std::fmt;
use std::sync::Arc;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountType};
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, KillContainerOptions, LogsOptionsBuilder,
    StartContainerOptions,
};
use futures_util::StreamExt;
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::Job;
use super::cleanup::labels::unique_name;
use super::cleanup::sweep::{remove_container, tolerate};
use super::compose::{MainContainer, Project};
use super::engine::{Engine, is_away};
use super::exec::assignments;
use super::image::Image;
use super::network::access::NetworkAccess;
use crate::environment::output::Tail;
use crate::environment::{EnvironmentError, Mount as UserMount, MountKind, Paths, Share, TrialLabel};
use crate::task::Task;

/// The most processes and threads of one container. Normal work needs fewer, and a fork bomb stops at this limit.
pub(super) const PIDS: i64 = 4096;
/// The command that keeps a container running. The image's entrypoint runs before it, as in Harbor. Old busybox has no
/// `infinity`.
pub(super) const FOREVER: [&str; 3] = ["sh", "-c", "sleep infinity || tail -f /dev/null"];
const MEBIBYTE: i64 = 1024 * 1024;

/// A running container.
pub struct Container {
    job: Arc<Job>,
    id: String,
    pub(super) paths: Paths,
    image_user: String,
    /// Set once the log directories exist. They are created with the first uploaded files.
    pub(super) log_directories: OnceCell<()>,
    pub(super) access: NetworkAccess,
    /// The container's name, if it remains after the trial.
    kept_as: Option<String>,
    /// The services of the trial, if this is the container of the main one.
    project: Option<Project>,
}

impl fmt::Debug for Container {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Container").field("id", &self.id).field("paths", &self.paths).finish()
    }
}

impl Image {
    /// Starts a container for one trial. If that fails, nothing remains.
    pub(in crate::environment) async fn start(
        &self,
        task: &Task,
        trial: &TrialLabel,
    ) -> Result<Container, EnvironmentError> {
        let image = &self.facts.name;
        let access = NetworkAccess::of(&self.job, &task.network).await?;
        let created = Box::pin(self.create(task, trial, &access)).await;
        let (id, name) =
            created.map_err(EnvironmentError::engine(format!("create a container of image {image}")))?;
        let container = Container {
            job: Arc::clone(&self.job),
            id,
            paths: Paths::below("", &self.workdir),
            image_user: self.facts.user.clone(),
            log_directories: OnceCell::new(),
            access,
            kept_as: self.keep.then_some(name),
            project: None,
        };
        let started = container.api().start_container(&container.id, None::<StartContainerOptions>).await;
        let started =
            started.map_err(EnvironmentError::engine(format!("start a container of image {image}")));
        let ready = match started {
            Ok(()) => container.set_network(&task.network.environment).await,
            failed => failed,
        };
        match ready {
            Ok(()) => Ok(container),
            Err(error) => Err(container.given_up(error).await),
        }
    }

    /// Creates the container, and returns its id and name. If the engine does not see the shared directories, since it
    /// may run on another machine, it creates the container without them. If the engine is restarting, it waits for it
    /// once.
    async fn create(
        &self,
        task: &Task,
        trial: &TrialLabel,
        access: &NetworkAccess,
    ) -> Result<(String, String), Error> {
        let mut description = self.description(task, trial, access);
        let mut waited = false;
        loop {
            let name = unique_name(&trial.0, Uuid::now_v7());
            let options =
                CreateContainerOptions { name: Some(name.clone()), ..CreateContainerOptions::default() };
            let created = self.job.engine.api.create_container(Some(options), description.clone()).await;
            match (created, &mut description.host_config) {
                // Happens once, as only the shares are dropped: the user's mounts are required.
                (Err(error), Some(HostConfig { mounts: Some(mounts), .. }))
                    if mounts.len() > self.mounts.len() && is_unseen(&error) =>
                {
                    *mounts = self.mounts.iter().map(mount).collect();
                }
                (Err(error), _) if !waited && is_away(&error) => {
                    waited = true;
                    self.job.engine.wait_until_back().await;
                }
                (created, _) => return Ok((created?.id, name)),
            }
        }
    }

    fn description(&self, task: &Task, trial: &TrialLabel, access: &NetworkAccess) -> ContainerCreateBody {
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
            labels: Some(match self.keep {
                true => self.job.labels.of_kept_trial(trial),
                false => self.job.labels.of_trial(trial),
            }),
            host_config: Some(HostConfig {
                // An init process reaps orphans and forwards signals.
                init: Some(true),
                nano_cpus,
                memory: config.memory_mb.map(|mebibytes| {
                    i64::try_from(mebibytes).unwrap_or(i64::MAX / MEBIBYTE).saturating_mul(MEBIBYTE)
                }),
                pids_limit: Some(PIDS),
                // With raw sockets, a container could answer for another one's address, or for the host's, on their
                // common bridge.
                cap_drop: Some(vec!["NET_RAW".to_owned()]),
                network_mode: Some(access.first_network(&self.job)),
                dns: access.name_servers(&self.job),
                mounts: Some(self.shares.iter().map(share).chain(self.mounts.iter().map(mount)).collect()),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        }
    }
}

fn mount(wanted: &UserMount) -> Mount {
    Mount {
        typ: Some(match wanted.kind {
            MountKind::Bind => MountType::BIND,
            MountKind::Volume => MountType::VOLUME,
        }),
        source: Some(wanted.source.clone()),
        target: Some(wanted.target.clone()),
        read_only: Some(wanted.read_only),
        ..Mount::default()
    }
}

fn share(share: &Share) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(share.host.display().to_string()),
        target: Some(share.inside.clone()),
        read_only: Some(true),
        ..Mount::default()
    }
}

/// Whether the engine reports that a mounted directory does not exist.
fn is_unseen(error: &Error) -> bool {
    let Error::DockerResponseServerError { message, .. } = error else { return false };
    message.contains("bind source path does not exist")
}

impl Container {
    /// Makes the container of a project's main service.
    pub(super) fn of_project(project: Project, main: MainContainer, access: NetworkAccess) -> Self {
        Self {
            job: Arc::clone(project.job()),
            id: main.id,
            paths: Paths::below("", &main.workdir),
            image_user: main.user,
            log_directories: OnceCell::new(),
            access,
            kept_as: None,
            project: Some(project),
        }
    }

    /// Returns the container of another service of the same trial. It has no log directories, and is removed with the
    /// main one.
    pub(in crate::environment) async fn service(&self, name: &str) -> Result<Self, EnvironmentError> {
        let project =
            self.project.as_ref().ok_or_else(|| EnvironmentError::NoSuchService(name.to_owned()))?;
        Ok(Self {
            job: Arc::clone(&self.job),
            id: project.container_of(name).await?,
            paths: Paths::below("", "/"),
            image_user: String::new(),
            log_directories: OnceCell::new_with(Some(())),
            access: NetworkAccess::Open,
            kept_as: None,
            project: None,
        })
    }

    pub(super) fn job(&self) -> &Job {
        &self.job
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

    /// Returns the image's `USER`. Empty for root.
    pub(super) fn image_user(&self) -> &str {
        &self.image_user
    }

    pub(in crate::environment) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Converts an error of the engine about this container. Most often, the container no longer runs.
    pub(super) async fn explain(&self, action: &str, source: Error) -> EnvironmentError {
        match self.ending().await {
            Ok(Some(exit_code)) => self.ended(exit_code).await,
            Ok(None) | Err(_) => EnvironmentError::Engine { action: action.to_owned(), source },
        }
    }

    /// Returns the exit code of a container that has ended, if it is known. Returns `None` for a running one.
    pub(super) async fn ending(&self) -> Result<Option<Option<i64>>, Error> {
        match self.api().inspect_container(&self.id, None::<InspectContainerOptions>).await {
            Ok(container) => {
                Ok(container.state.filter(|state| state.running != Some(true)).map(|state| state.exit_code))
            }
            // A removed container has ended with an unknown exit code.
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(Some(None)),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn ended(&self, exit_code: Option<i64>) -> EnvironmentError {
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).tail("20").build();
        let mut logs = self.api().logs(&self.id, Some(options));
        let mut tail = Tail::default();
        while let Some(Ok(line)) = logs.next().await {
            tail.push(&String::from_utf8_lossy(line.as_ref()));
        }
        EnvironmentError::Ended { exit_code, tail: tail.text() }
    }

    /// Removes a container that could not be prepared, and returns the given error.
    pub(super) async fn given_up(self, why: EnvironmentError) -> EnvironmentError {
        if let Err(left) = self.remove().await {
            tracing::warn!(error = %left, "a container that did not start is left until the job ends");
        }
        why
    }

    /// Returns the container's name, if it remains after the trial.
    pub(in crate::environment) fn kept_as(&self) -> Option<&str> {
        self.kept_as.as_deref()
    }

    /// Kills the container at once, without a grace period. Removes it, unless it is to remain.
    pub(in crate::environment) async fn stop(&self) -> Result<(), EnvironmentError> {
        let Some(name) = &self.kept_as else { return self.remove().await };
        // The permit belongs to the address, which another container may get after this one has ended.
        self.forget_permit();
        let killed = self.api().kill_container(&self.id, None::<KillContainerOptions>).await;
        // 409: the container has ended. 404: it is gone.
        let killed = tolerate(killed, &[404, 409]);
        killed.map_err(EnvironmentError::engine(format!("kill container {name}")))
    }

    async fn remove(&self) -> Result<(), EnvironmentError> {
        self.forget_permit();
        if let Some(project) = &self.project {
            return project.remove().await;
        }
        let removed = remove_container(self.api(), &self.id).await;
        removed.map_err(EnvironmentError::engine(format!("remove container {}", self.id)))
    }
}

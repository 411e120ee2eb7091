//! The parts of environments that a job shares: the engine, the network, the images.

use std::net::{IpAddr, Ipv4Addr};

use super::docker::{Composed, DockerHost, Image, has_services};
use super::local::{LocalEnvironment, LocalHost, Plan};
use super::{Environment, EnvironmentError, EnvironmentKind, JobLabel, Mount, Share, TrialLabel};
use crate::common::activity::Activities;
use crate::task::Task;

/// The creator of a job's environments. There is one per job, and [`Host::close`] removes everything.
pub struct Host(Kind);

enum Kind {
    Docker(DockerHost),
    Local(LocalHost),
}

/// The image, services or plan that a task's environments are started from.
#[derive(Clone, Debug)]
pub struct Prepared(PreparedKind);

#[derive(Clone, Debug)]
enum PreparedKind {
    Docker(Image),
    Composed(Composed),
    Local(Plan),
}

impl Prepared {
    /// Adds directories of this host that containers can read. An engine on another machine starts its containers
    /// without them. The local environment uses the paths of this host.
    #[must_use]
    pub fn sharing(mut self, shares: Vec<Share>) -> Self {
        match &mut self.0 {
            PreparedKind::Docker(image) => image.shares = shares,
            PreparedKind::Composed(composed) => composed.shares = shares,
            PreparedKind::Local(_) => {}
        }
        self
    }

    /// Adds the user's mounts. An engine that does not find a source starts no container. Jobs reject mounts for the
    /// local environment before they start.
    #[must_use]
    pub fn mounting(mut self, mounts: Vec<Mount>) -> Self {
        match &mut self.0 {
            PreparedKind::Docker(image) => image.mounts = mounts,
            PreparedKind::Composed(composed) => composed.mounts = mounts,
            PreparedKind::Local(_) => {}
        }
        self
    }

    /// With `keep`, containers are killed and not removed after their trials, so that a person can inspect them. Has no
    /// effect on tasks with services, nor in the local environment.
    #[must_use]
    pub fn keeping(mut self, keep: bool) -> Self {
        if let PreparedKind::Docker(image) = &mut self.0 {
            image.keep = keep;
        }
        self
    }
}

/// Logs a warning if environments of this kind are no sandbox.
pub(crate) fn warn_of_missing_sandbox(kind: EnvironmentKind) {
    if kind == EnvironmentKind::Local {
        tracing::warn!(
            "the local environment is no sandbox and uses no images: agents and tests run as you, with the programs, \
             files and network of this host"
        );
    }
}

impl Host {
    /// Connects to the engine and creates the job's network, in which containers cannot reach each other. Removes the
    /// containers and networks of dead jobs of this host.
    ///
    /// # Errors
    /// There is no engine, no network can be created, or Harbor creates environments of this kind itself.
    pub async fn connect(kind: EnvironmentKind, job: &JobLabel) -> Result<Self, EnvironmentError> {
        Self::connect_with(kind, job, Activities::default()).await
    }

    /// Connects as [`Host::connect`] does, and lists builds and pulls among these activities.
    pub(crate) async fn connect_with(
        kind: EnvironmentKind,
        job: &JobLabel,
        activities: Activities,
    ) -> Result<Self, EnvironmentError> {
        match kind {
            EnvironmentKind::Docker => Ok(Self(Kind::Docker(DockerHost::connect(job, activities).await?))),
            EnvironmentKind::Local => Ok(Self(Kind::Local(LocalHost::default()))),
            EnvironmentKind::Harbor => Err(EnvironmentError::HarborsOwn),
        }
    }

    /// With `force`, images are built even if an earlier build exists, or if a task with a Dockerfile names a ready
    /// image: Harbor's `force_build`.
    #[must_use]
    pub fn force_build(mut self, force: bool) -> Self {
        if let Kind::Docker(docker) = &mut self.0 {
            docker.force_build(force);
        }
        self
    }

    /// Makes the host read a task again each time that it is prepared, since it may have changed. An image that was
    /// built from the same content is found by its name.
    #[must_use]
    pub(crate) fn for_changing_tasks(mut self) -> Self {
        if let Kind::Docker(docker) = &mut self.0 {
            docker.ask_anew();
        }
        self
    }

    /// Returns the address at which the agent plane must listen so that environments reach it.
    pub fn bind_address(&self) -> IpAddr {
        match &self.0 {
            Kind::Docker(docker) => docker.gateway(),
            Kind::Local(_) => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Builds, finds or pulls the task's image. Trials that ask at the same time share the work and its failure.
    ///
    /// # Errors
    /// The image cannot be obtained, or the task's Dockerfile cannot be read.
    pub async fn prepare(&self, task: &Task) -> Result<Prepared, EnvironmentError> {
        Ok(Prepared(match &self.0 {
            Kind::Docker(docker) if has_services(task) => {
                PreparedKind::Composed(Box::pin(docker.composed(task)).await?)
            }
            Kind::Docker(docker) => PreparedKind::Docker(Box::pin(docker.image(task)).await?),
            Kind::Local(local) => PreparedKind::Local(local.plan(task)?),
        }))
    }

    /// Returns the container that remains of a trial, or `None` if there is none.
    ///
    /// # Errors
    /// The engine fails.
    pub async fn kept(&self, trial: &TrialLabel) -> Result<Option<String>, EnvironmentError> {
        match &self.0 {
            Kind::Docker(docker) => docker.kept(trial.name()).await,
            Kind::Local(_) => Ok(None),
        }
    }

    /// Prepares environments with the files of a remaining container, which does not change. [`Self::discard`] removes
    /// the copy of the files.
    ///
    /// # Errors
    /// The engine fails, or the environments of this host are not containers.
    pub async fn prepare_kept(&self, container: &str, task: &Task) -> Result<Prepared, EnvironmentError> {
        match &self.0 {
            Kind::Docker(docker) => {
                Ok(Prepared(PreparedKind::Docker(docker.snapshot(container, task).await?)))
            }
            Kind::Local(_) => Err(EnvironmentError::NoSuchPath(container.to_owned())),
        }
    }

    /// Removes the copy of the files of a remaining container.
    ///
    /// # Errors
    /// The engine fails.
    pub async fn discard(&self, prepared: Prepared) -> Result<(), EnvironmentError> {
        match (&self.0, prepared.0) {
            (Kind::Docker(docker), PreparedKind::Docker(image)) => docker.discard(&image).await,
            _ => Ok(()),
        }
    }

    /// Starts an environment for one trial.
    ///
    /// # Errors
    /// The environment fails. Nothing remains then.
    pub async fn start(
        &self,
        prepared: &Prepared,
        task: &Task,
        trial: &TrialLabel,
    ) -> Result<Environment, EnvironmentError> {
        Ok(match &prepared.0 {
            PreparedKind::Docker(image) => Environment::Docker(Box::pin(image.start(task, trial)).await?),
            PreparedKind::Composed(composed) => {
                Environment::Docker(Box::pin(composed.start(task, trial)).await?)
            }
            PreparedKind::Local(plan) => Environment::Local(LocalEnvironment::start(plan, task)?),
        })
    }

    /// Removes every container and network of this job. Images that it built remain.
    ///
    /// # Errors
    /// [`EnvironmentError::Leftovers`] names the objects that remain.
    pub async fn close(self) -> Result<(), EnvironmentError> {
        match self.0 {
            Kind::Docker(docker) => docker.close().await,
            Kind::Local(_) => Ok(()),
        }
    }
}

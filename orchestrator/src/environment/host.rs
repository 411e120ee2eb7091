//! A job's share of its environments: the engine, the network, the images.

use std::net::{IpAddr, Ipv4Addr};

use super::docker::{Composed, DockerHost, Image, has_services};
use super::local::{LocalEnvironment, LocalHost, Plan};
use super::{Environment, EnvironmentError, EnvironmentKind, JobLabel, Mount, Share, TrialLabel};
use crate::task::Task;

/// Where a job's environments are made. One per job; [`Host::close`] puts everything away.
pub struct Host(Kind);

enum Kind {
    Docker(DockerHost),
    Local(LocalHost),
}

/// What a task's environments are started from.
#[derive(Clone, Debug)]
pub struct Prepared(PreparedKind);

#[derive(Clone, Debug)]
enum PreparedKind {
    Docker(Image),
    Composed(Composed),
    Local(Plan),
}

impl Prepared {
    /// The same, with directories of this host that containers see as well. An engine that cannot see them (one of another
    /// machine) starts its containers without; the local environment has this host's own paths.
    #[must_use]
    pub fn sharing(mut self, shares: Vec<Share>) -> Self {
        match &mut self.0 {
            PreparedKind::Docker(image) => image.shares = shares,
            PreparedKind::Composed(composed) => composed.shares = shares,
            PreparedKind::Local(_) => {}
        }
        self
    }

    /// The same, with what the user wants mounted. An engine that cannot see it starts nothing. Jobs refuse mounts of the
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

    /// The same, with containers that are killed and not removed when their trials are over: for a person to look at.
    #[must_use]
    pub fn keeping(mut self, keep: bool) -> Self {
        if let PreparedKind::Docker(image) = &mut self.0 {
            image.keep = keep;
        }
        self
    }
}

impl Host {
    /// Connects to the engine and makes the job's network, in which containers cannot reach each other. Removes what
    /// jobs of this host left behind that died.
    ///
    /// # Errors
    /// No engine, no network to be had, or a kind that Harbor makes itself.
    pub async fn connect(kind: EnvironmentKind, job: &JobLabel) -> Result<Self, EnvironmentError> {
        match kind {
            EnvironmentKind::Docker => Ok(Self(Kind::Docker(DockerHost::connect(job).await?))),
            EnvironmentKind::Local => {
                tracing::warn!(
                    "the local environment is no sandbox and uses no images: agents and tests run as you, with the programs, \
                     files and network of this host"
                );
                Ok(Self(Kind::Local(LocalHost::default())))
            }
            EnvironmentKind::Harbor => Err(EnvironmentError::HarborsOwn),
        }
    }

    /// From now on an image is built also where it is kept from before, and where a task with a Dockerfile names a ready
    /// one: Harbor's `force_build`.
    #[must_use]
    pub fn force_build(mut self, force: bool) -> Self {
        if let Kind::Docker(docker) = &mut self.0 {
            docker.force_build(force);
        }
        self
    }

    /// From now on a task is looked at anew each time that it is prepared, as it may change while this lives. What was built
    /// from the same content is found, and asked for by name.
    #[must_use]
    pub(crate) fn for_changing_tasks(mut self) -> Self {
        if let Kind::Docker(docker) = &mut self.0 {
            docker.ask_anew();
        }
        self
    }

    /// Where the agent plane must listen so that environments reach it.
    pub fn bind_address(&self) -> IpAddr {
        match &self.0 {
            Kind::Docker(docker) => docker.gateway(),
            Kind::Local(_) => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Builds, finds or pulls the task's image; trials that ask at once share the work, and its failure.
    ///
    /// # Errors
    /// The image cannot be had, or the task's Dockerfile cannot be read.
    pub async fn prepare(&self, task: &Task) -> Result<Prepared, EnvironmentError> {
        Ok(Prepared(match &self.0 {
            Kind::Docker(docker) if has_services(task) => {
                PreparedKind::Composed(Box::pin(docker.composed(task)).await?)
            }
            Kind::Docker(docker) => PreparedKind::Docker(Box::pin(docker.image(task)).await?),
            Kind::Local(local) => PreparedKind::Local(local.plan(task)?),
        }))
    }

    /// Starts an environment for one trial.
    ///
    /// # Errors
    /// The environment's own trouble; nothing is left behind then.
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

    /// Removes every container and network of this job. Images that it built are kept.
    ///
    /// # Errors
    /// [`EnvironmentError::Leftovers`] names what is still there.
    pub async fn close(self) -> Result<(), EnvironmentError> {
        match self.0 {
            Kind::Docker(docker) => docker.close().await,
            Kind::Local(_) => Ok(()),
        }
    }
}

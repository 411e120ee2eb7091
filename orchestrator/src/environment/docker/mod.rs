//! Containers by the Docker engine's API alone: no command line, no compose.

mod build;
mod clean;
mod cleanup;
mod command_line;
mod container;
mod engine;
mod exec;
mod found;
mod image;
mod labels;
mod network;
mod owner;
mod terminal;

use std::net::IpAddr;
use std::sync::Arc;

use build::Builds;
pub use clean::Cleaner;
pub use container::Container;
use engine::Engine;
pub use found::{Found, FoundKind};
pub(super) use image::Image;
use image::Images;
use labels::Labels;
use network::Network;
pub use owner::OwnerState;

use super::{EnvironmentError, JobLabel};
use crate::task::Task;

/// One job at an engine.
pub(super) struct DockerHost {
    job: Arc<Job>,
    /// Images are built although they are kept, or named by the task.
    force_build: bool,
}

/// What the trials of a job share.
struct Job {
    engine: Engine,
    labels: Labels,
    network: Network,
    images: Images,
    builds: Builds,
}

impl DockerHost {
    pub(super) async fn connect(job: &JobLabel) -> Result<Self, EnvironmentError> {
        let engine = Engine::connect().await?;
        cleanup::sweep_dead_runs(&engine).await;
        let labels = Labels::new(job);
        let network = Network::create(&engine, &labels).await?;
        let (images, builds) = (Images::default(), Builds::default());
        let job = Job { engine, labels, network, images, builds };
        Ok(Self { job: Arc::new(job), force_build: false })
    }

    pub(super) fn force_build(&mut self, force: bool) {
        self.force_build = force;
    }

    /// The host's address in the job's network.
    pub(super) fn gateway(&self) -> IpAddr {
        self.job.network.gateway
    }

    pub(super) async fn image(&self, task: &Task) -> Result<Image, EnvironmentError> {
        self.job.image(task, self.force_build).await
    }

    pub(super) async fn close(self) -> Result<(), EnvironmentError> {
        let problems = cleanup::remove_labelled(&self.job.engine, &self.job.labels.filter()).await;
        if problems.is_empty() { Ok(()) } else { Err(EnvironmentError::Leftovers(problems)) }
    }
}

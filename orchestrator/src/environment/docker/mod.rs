//! Containers by the Docker engine's API alone: no command line, no compose.

mod cleanup;
mod container;
mod engine;
mod exec;
mod image;
mod labels;
mod network;
mod terminal;

use std::net::IpAddr;
use std::sync::Arc;

pub use container::Container;
use engine::Engine;
pub(super) use image::Image;
use image::Images;
use labels::Labels;
use network::Network;

use super::{EnvironmentError, JobLabel};
use crate::task::Task;

/// One job at an engine.
pub(super) struct DockerHost(Arc<Job>);

/// What the trials of a job share.
struct Job {
    engine: Engine,
    labels: Labels,
    network: Network,
    images: Images,
}

impl DockerHost {
    pub(super) async fn connect(job: &JobLabel) -> Result<Self, EnvironmentError> {
        let engine = Engine::connect().await?;
        cleanup::sweep_dead_runs(&engine.api).await;
        let labels = Labels::new(job);
        let network = Network::create(&engine, &labels).await?;
        Ok(Self(Arc::new(Job { engine, labels, network, images: Images::default() })))
    }

    /// The host's address in the job's network.
    pub(super) fn gateway(&self) -> IpAddr {
        self.0.network.gateway
    }

    pub(super) async fn image(&self, task: &Task) -> Result<Image, EnvironmentError> {
        self.0.image(task).await
    }

    pub(super) async fn close(self) -> Result<(), EnvironmentError> {
        let problems = cleanup::remove_labelled(&self.0.engine.api, &self.0.labels.filter()).await;
        if problems.is_empty() { Ok(()) } else { Err(EnvironmentError::Leftovers(problems)) }
    }
}

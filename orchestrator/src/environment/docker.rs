//! Containers by the Docker engine's API. Only BuildKit and compose need Docker's command line.

mod build;
pub(crate) mod cleanup;
mod command_line;
mod compose;
mod container;
mod engine;
mod exec;
mod files;
mod image;
mod kept;
pub(crate) mod network;
mod terminal;

use std::net::IpAddr;
use std::sync::Arc;

use build::Builds;
pub use cleanup::clean::Cleaner;
pub use cleanup::inventory::{EngineObject, FoundKind};
use cleanup::labels::Labels;
pub use cleanup::process_owner::OwnerState;
pub(super) use compose::Composed;
use compose::Compositions;
pub(crate) use compose::cleanup::ComposeProjects;
pub(crate) use compose::has_services;
pub use container::Container;
use engine::Engine;
pub(super) use image::Image;
use image::Images;
use network::isolation::Isolation;
use network::shared::{Access, Network};
use tokio::sync::OnceCell;

use super::{EnvironmentError, JobLabel};
use crate::common::activity::Activities;
use crate::task::Task;

/// One job's use of an engine.
pub(super) struct DockerHost {
    job: Arc<Job>,
    /// Build images even if an earlier build exists, or if the task names an image.
    force_build: bool,
    /// Whether tasks may change during the life of this host, so that each one is read again.
    asks_anew: bool,
}

/// The parts that the trials of a job share.
struct Job {
    engine: Engine,
    labels: Labels,
    network: Network,
    /// The network of trials without internet. It is created when the first trial needs it.
    isolation: OnceCell<Isolation>,
    images: Images,
    compositions: Compositions,
    builds: Builds,
    /// Builds and pulls in progress.
    activities: Activities,
}

impl DockerHost {
    pub(super) async fn connect(job: &JobLabel, activities: Activities) -> Result<Self, EnvironmentError> {
        let engine = Engine::connect().await?;
        cleanup::sweep::sweep_dead_runs(&engine).await;
        let labels = Labels::new(job);
        let network = Network::shared(&engine, Access::World).await?;
        let (images, compositions, builds) = <(Images, Compositions, Builds)>::default();
        let isolation = OnceCell::new();
        let job = Job { engine, labels, network, isolation, images, compositions, builds, activities };
        Ok(Self { job: Arc::new(job), force_build: false, asks_anew: false })
    }

    pub(super) fn force_build(&mut self, force: bool) {
        self.force_build = force;
    }

    pub(super) fn ask_anew(&mut self) {
        self.asks_anew = true;
    }

    /// Returns the host's address in the containers' network.
    pub(super) fn gateway(&self) -> IpAddr {
        self.job.network.gateway
    }

    pub(super) async fn image(&self, task: &Task) -> Result<Image, EnvironmentError> {
        if self.asks_anew {
            self.job.images.forget(task, self.force_build);
        }
        self.job.image(task, self.force_build).await
    }

    pub(super) async fn composed(&self, task: &Task) -> Result<Composed, EnvironmentError> {
        if self.asks_anew {
            self.job.compositions.forget(task);
        }
        self.job.composed(task, self.force_build).await
    }

    pub(super) async fn close(self) -> Result<(), EnvironmentError> {
        // By label: an interrupted start may leave containers that no variable refers to.
        let problems = cleanup::sweep::remove_labelled(&self.job.engine, &self.job.labels.filter()).await;
        if problems.is_empty() { Ok(()) } else { Err(EnvironmentError::Leftovers(problems)) }
    }
}

//! The image of a task: the one that it names, or the one that its `environment/` is built to. Asked for once per job.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bollard::errors::Error;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::StreamExt;
use tokio::sync::OnceCell;

use super::Job;
use crate::common::plain::plain;
use crate::environment::{EnvironmentError, Mount as UserMount, Share};
use crate::task::Task;

/// What a task's containers are started from.
#[derive(Clone)]
pub(in crate::environment) struct Image {
    pub(super) job: Arc<Job>,
    pub(super) facts: Facts,
    /// The task's, or else the image's.
    pub(super) workdir: String,
    /// What its containers see of this host.
    pub(in crate::environment) shares: Vec<Share>,
    /// What the user wants mounted besides.
    pub(in crate::environment) mounts: Vec<UserMount>,
    /// Its containers stay when their trials are over.
    pub(in crate::environment) keep: bool,
}

/// What is known of an image.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) name: String,
    /// `USER`; empty for root.
    pub(super) user: String,
    workdir: String,
}

/// The images of a job, by where they come from. A build that failed is kept too: eight trials of a task whose image
/// cannot be built do not try eight times. Those that wait for the same image share its failure, whatever it is.
#[derive(Default)]
pub(super) struct Images(Mutex<HashMap<Origin, Arc<Outcome>>>);

type Outcome = OnceCell<Result<Facts, Arc<EnvironmentError>>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Origin {
    /// A build context. Tasks do not change while a job runs.
    Built(PathBuf),
    Named(String),
}

impl fmt::Debug for Image {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Image").field("facts", &self.facts).field("workdir", &self.workdir).finish()
    }
}

impl Images {
    /// What came of it counts no more. Work under way goes on, and is waited for.
    pub(super) fn forget(&self, task: &Task, force_build: bool) {
        self.forget_if(&origin(task, force_build), |outcome| outcome.initialized());
    }

    fn forget_if(&self, origin: &Origin, is_meant: impl FnOnce(&Arc<Outcome>) -> bool) {
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if images.get(origin).is_some_and(is_meant) {
            images.remove(origin);
        }
    }
}

impl Job {
    /// The task's image, ready for use. Whoever asks while another one builds it waits for that.
    pub(super) async fn image(
        self: &Arc<Self>,
        task: &Task,
        force_build: bool,
    ) -> Result<Image, EnvironmentError> {
        let origin = origin(task, force_build);
        let outcome = {
            let mut images = self.images.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(images.entry(origin.clone()).or_default())
        };
        let make = async {
            let facts = match &origin {
                Origin::Named(name) => self.find_or_pull(name).await,
                Origin::Built(context) => Box::pin(self.built(task, context, force_build)).await,
            };
            facts.map_err(Arc::new)
        };
        let facts = outcome.get_or_init(|| make).await.clone();
        let facts = facts.map_err(|error| {
            // Another attempt may fare better with what is not the task's own doing.
            if !matches!(*error, EnvironmentError::Build { .. } | EnvironmentError::NoBuildKit { .. }) {
                self.images.forget_if(&origin, |known| Arc::ptr_eq(known, &outcome));
            }
            EnvironmentError::Shared(error)
        })?;
        let workdir = task.config.environment.workdir.clone().unwrap_or_else(|| facts.workdir.clone());
        Ok(Image {
            job: Arc::clone(self),
            facts,
            workdir,
            shares: Vec::new(),
            mounts: Vec::new(),
            keep: false,
        })
    }

    async fn find_or_pull(&self, name: &str) -> Result<Facts, EnvironmentError> {
        if let Some(facts) = self.find(name).await? {
            return Ok(facts);
        }
        let failed = |source| EnvironmentError::Pull { image: name.to_owned(), source };
        self.pull(name).await.map_err(failed)?;
        let gone = Error::DockerStreamError { error: "it is gone after it was pulled".to_owned() };
        self.find(name).await?.ok_or_else(|| failed(gone))
    }

    /// None if there is no such image at the engine.
    pub(super) async fn find(&self, name: &str) -> Result<Option<Facts>, EnvironmentError> {
        let config = match self.engine.api.inspect_image(name).await {
            Ok(image) => image.config.unwrap_or_default(),
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => return Ok(None),
            Err(source) => {
                return Err(EnvironmentError::Engine { action: format!("inspect image {name}"), source });
            }
        };
        let workdir = config.working_dir.filter(|dir| !dir.is_empty()).unwrap_or_else(|| "/".to_owned());
        Ok(Some(Facts { name: name.to_owned(), workdir, user: config.user.unwrap_or_default() }))
    }

    pub(super) async fn pull(&self, name: &str) -> Result<(), Error> {
        // Without a tag the engine would pull every tag that there is.
        let last = name.rsplit('/').next().unwrap_or(name);
        let tag = if last.contains([':', '@']) { "" } else { "latest" };
        let options = CreateImageOptionsBuilder::default().from_image(name).tag(tag).build();
        let mut progress = Progress::new("pulling", name);
        let mut events = self.engine.api.create_image(Some(options), None, None);
        while let Some(event) = events.next().await {
            let CreateImageInfo { status, .. } = event?;
            progress.report(status.as_deref().unwrap_or_default());
        }
        Ok(())
    }
}

/// A ready image wins over a Dockerfile, unless builds are forced: as in Harbor.
fn origin(task: &Task, force_build: bool) -> Origin {
    match &task.config.environment.docker_image {
        Some(name) if !(force_build && task.dockerfile().is_file()) => Origin::Named(name.clone()),
        _ => Origin::Built(task.environment_dir()),
    }
}

/// Long work reported now and then.
pub(super) struct Progress<'a> {
    doing: &'static str,
    name: &'a str,
    next: Instant,
}

impl<'a> Progress<'a> {
    const PAUSE: Duration = Duration::from_secs(5);

    pub(super) fn new(doing: &'static str, name: &'a str) -> Self {
        tracing::info!("{doing} {name}");
        Self { doing, name, next: Instant::now() + Self::PAUSE }
    }

    pub(super) fn report(&mut self, status: &str) {
        if Instant::now() >= self.next {
            self.next = Instant::now() + Self::PAUSE;
            tracing::info!("{} {}: {}", self.doing, self.name, plain(status));
        }
    }
}

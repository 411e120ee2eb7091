//! The image of a task: a named image, or the image that is built from its `environment/`. It is looked up once per
//! job.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bollard::errors::Error;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::StreamExt;
use tokio::sync::OnceCell;

use super::Job;
use crate::environment::{EnvironmentError, Mount as UserMount, Share};
use crate::task::Task;

/// The image of a task, with the settings of its containers.
#[derive(Clone)]
pub(in crate::environment) struct Image {
    pub(super) job: Arc<Job>,
    pub(super) facts: Facts,
    /// The working directory of the task, or of the image if the task has none.
    pub(super) workdir: String,
    /// Directories of this host that the containers can read.
    pub(in crate::environment) shares: Vec<Share>,
    /// Mounts of the user.
    pub(in crate::environment) mounts: Vec<UserMount>,
    /// Whether containers remain after their trials.
    pub(in crate::environment) keep: bool,
}

/// The facts of an image that rolltap needs.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) name: String,
    /// The image's `USER`. Empty for root.
    pub(super) user: String,
    workdir: String,
}

/// The images of a job, by origin. A failed build is stored too: eight trials of a task whose image cannot be built do
/// not try eight times. Callers that wait for the same image share every failure.
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
    /// Forgets the result for a task. Work in progress continues, and later callers wait for it.
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
    /// Returns the task's image, ready for use. Callers that ask during the build wait for its result.
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
            // Other errors, such as those of the network, are not the task's fault, so a later attempt may succeed.
            if !matches!(*error, EnvironmentError::Build { .. } | EnvironmentError::NoBuildKit { .. }) {
                // Only this result is removed, and not that of a newer attempt.
                self.images.forget_if(&origin, |known| Arc::ptr_eq(known, &outcome));
            }
            EnvironmentError::Shared(error)
        })?;
        Ok(self.image_of(task, facts))
    }

    /// Returns an image for the containers of a task.
    pub(super) fn image_of(self: &Arc<Self>, task: &Task, facts: Facts) -> Image {
        let workdir = task.config.environment.workdir.clone().unwrap_or_else(|| facts.workdir.clone());
        Image { job: Arc::clone(self), facts, workdir, shares: Vec::new(), mounts: Vec::new(), keep: false }
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

    /// Returns the facts of an image, or `None` if the engine does not have it.
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
        // Without a tag, the engine would pull every tag of the repository.
        let last = name.rsplit('/').next().unwrap_or(name);
        let tag = if last.contains([':', '@']) { "" } else { "latest" };
        let options = CreateImageOptionsBuilder::default().from_image(name).tag(tag).build();
        let mut activity = self.activities.begin("pulling", name);
        let mut events = self.engine.api.create_image(Some(options), None, None);
        while let Some(event) = events.next().await {
            let CreateImageInfo { status, .. } = event?;
            activity.report(status.as_deref().unwrap_or_default());
        }
        Ok(())
    }
}

/// Chooses the origin. A ready image takes precedence over a Dockerfile, unless builds are forced, as in Harbor.
fn origin(task: &Task, force_build: bool) -> Origin {
    match &task.config.environment.docker_image {
        Some(name) if !(force_build && task.dockerfile().is_file()) => Origin::Named(name.clone()),
        _ => Origin::Built(task.environment_dir()),
    }
}

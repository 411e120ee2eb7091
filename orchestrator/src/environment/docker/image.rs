//! The image of a task: built from `environment/`, or the one that the task names. Once per job.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bollard::errors::Error;
use bollard::models::{BuildInfo, CreateImageInfo};
use bollard::query_parameters::{BuildImageOptionsBuilder, CreateImageOptionsBuilder};
use futures_util::StreamExt;
use tokio::sync::OnceCell;
use tokio_util::io::ReaderStream;

use super::Job;
use super::labels::slug;
use crate::environment::archive;
use crate::environment::build_context::build_context;
use crate::environment::output::Tail;
use crate::environment::{EnvironmentError, Share, error};
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
}

/// What is known of an image.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) name: String,
    /// `USER`; empty for root.
    pub(super) user: String,
    workdir: String,
}

/// The images of a job, by where they come from. A failure is kept too: eight trials of a task whose image cannot be
/// built do not try eight times.
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

impl Job {
    /// The task's image, ready for use. Whoever asks while another one builds it waits for that.
    pub(super) async fn image(self: &Arc<Self>, task: &Task) -> Result<Image, EnvironmentError> {
        let origin = match &task.config.environment.docker_image {
            Some(name) => Origin::Named(name.clone()),
            None => Origin::Built(task.environment_dir()),
        };
        let outcome = {
            let mut images = self.images.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(images.entry(origin.clone()).or_default())
        };
        let make = async {
            let name = match &origin {
                Origin::Named(name) => self.find_or_pull(name).await.map(|()| name.clone()),
                Origin::Built(context) => self.build(task, context).await,
            };
            self.facts(name.map_err(Arc::new)?).await.map_err(Arc::new)
        };
        let facts = outcome.get_or_init(|| make).await.clone().map_err(EnvironmentError::Shared)?;
        let workdir = task.config.environment.workdir.clone().unwrap_or_else(|| facts.workdir.clone());
        Ok(Image { job: Arc::clone(self), facts, workdir, shares: Vec::new() })
    }

    async fn facts(&self, name: String) -> Result<Facts, EnvironmentError> {
        let inspected = self.engine.api.inspect_image(&name).await;
        let config = inspected.map_err(EnvironmentError::engine(format!("inspect image {name}")))?.config;
        let config = config.unwrap_or_default();
        let workdir = config.working_dir.filter(|dir| !dir.is_empty()).unwrap_or_else(|| "/".to_owned());
        Ok(Facts { name, workdir, user: config.user.unwrap_or_default() })
    }

    async fn find_or_pull(&self, name: &str) -> Result<(), EnvironmentError> {
        match self.engine.api.inspect_image(name).await {
            Ok(_) => return Ok(()),
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => {}
            Err(source) => {
                return Err(EnvironmentError::Engine { action: format!("inspect image {name}"), source });
            }
        }
        let failed = |source| EnvironmentError::Pull { image: name.to_owned(), source };
        // Without a tag the engine would pull every tag that there is.
        let last = name.rsplit('/').next().unwrap_or(name);
        let tag = if last.contains([':', '@']) { "" } else { "latest" };
        let options = CreateImageOptionsBuilder::default().from_image(name).tag(tag).build();
        let mut progress = Progress::new("pulling", name);
        let mut events = self.engine.api.create_image(Some(options), None, None);
        while let Some(event) = events.next().await {
            let CreateImageInfo { status, .. } = event.map_err(failed)?;
            progress.report(status.as_deref().unwrap_or_default());
        }
        Ok(())
    }

    /// Builds with the engine's classic builder, which every engine has. Returns the image's name.
    async fn build(&self, task: &Task, context: &Path) -> Result<String, EnvironmentError> {
        let (archive, hash) = {
            let context = context.to_owned();
            error::blocking(move || pack_context(&context)).await?
        };
        let name = format!("{}/{}:{hash}", self.network.name, slug(&task.name));
        let options = BuildImageOptionsBuilder::default()
            .dockerfile("Dockerfile")
            .t(&name)
            .labels(&self.labels.of_job())
            .rm(true)
            .forcerm(true)
            .build();
        let body = bollard::body_try_stream(ReaderStream::new(tokio::fs::File::from_std(archive)));
        let mut log = BuildLog { task: &task.name, tail: Tail::default(), ended: false };
        let mut progress = Progress::new("building image of", &task.name);
        let mut events = Box::pin(self.engine.api.build_image(options, None, Some(body)));
        while let Some(event) = events.next().await {
            let failure = match event {
                Ok(BuildInfo { error_detail: Some(detail), .. }) => detail.message.unwrap_or_default(),
                Ok(BuildInfo { stream, status, .. }) => {
                    let text = stream.or(status.map(|status| status + "\n")).unwrap_or_default();
                    progress.report(text.trim());
                    log.tail.push(&text);
                    continue;
                }
                Err(Error::DockerStreamError { error }) => error,
                Err(Error::DockerResponseServerError { message, .. }) => message,
                Err(source) => {
                    log.ended = true;
                    return Err(EnvironmentError::Engine {
                        action: format!("build the image of {}", task.name),
                        source,
                    });
                }
            };
            log.ended = true;
            return Err(build_error(&task.name, &failure, &log.tail));
        }
        log.ended = true;
        Ok(name)
    }
}

fn build_error(task: &str, failure: &str, tail: &Tail) -> EnvironmentError {
    let mut message = failure.trim().to_owned();
    if ["BuildKit", "buildkit", "unknown instruction", "Unknown flag"]
        .iter()
        .any(|words| message.contains(words))
    {
        message.push_str(
            " (images are built with the engine's classic builder: BuildKit's own syntax, such as RUN --mount and \
             here-documents, is not supported yet)",
        );
    }
    EnvironmentError::Build { task: task.to_owned(), message, tail: tail.text() }
}

/// The build context as an archive, and a name for its contents.
fn pack_context(context: &Path) -> Result<(std::fs::File, String), EnvironmentError> {
    let entries = build_context(context)?;
    let archive = archive::pack(&entries, Path::new(""))?;
    let hash = archive::content_hash(&entries)?;
    Ok((archive, hash))
}

/// A build's output. If it is given up half-way, as when the environment's time is over, its last lines are logged.
struct BuildLog<'a> {
    task: &'a str,
    tail: Tail,
    ended: bool,
}

impl Drop for BuildLog<'_> {
    fn drop(&mut self) {
        if !self.ended {
            tracing::warn!(
                "gave up building the image of {}; last lines of the build:\n{}",
                self.task,
                self.tail.text()
            );
        }
    }
}

/// Long work reported now and then.
struct Progress<'a> {
    doing: &'static str,
    name: &'a str,
    next: Instant,
}

impl<'a> Progress<'a> {
    const PAUSE: Duration = Duration::from_secs(5);

    fn new(doing: &'static str, name: &'a str) -> Self {
        tracing::info!("{doing} {name}");
        Self { doing, name, next: Instant::now() + Self::PAUSE }
    }

    fn report(&mut self, status: &str) {
        if Instant::now() >= self.next {
            self.next = Instant::now() + Self::PAUSE;
            tracing::info!("{} {}: {status}", self.doing, self.name);
        }
    }
}

//! Builds the image of a build context, once per content. The engine's classic builder, which every engine has, builds
//! it, or BuildKit if the Dockerfile needs it.
//!
//! Both exist because they need different things. The classic builder needs the engine's socket and nothing else, so it
//! also serves a remote engine, or a host without Docker's command line. BuildKit needs that command line with the
//! buildx plugin. The tests run on an engine of version 20.10, which has both. Since Docker 23 the classic
//! builder is deprecated. It can be deleted once rolltap requires Docker 23 and buildx.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bollard::errors::Error;
use bollard::models::BuildInfo;
use bollard::query_parameters::{BuildImageOptionsBuilder, TagImageOptionsBuilder};
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::io::ReaderStream;

use super::Job;
use super::cleanup::labels;
use super::command_line::{CommandLine, NoCommandLine};
use super::image::Facts;
use crate::common::plain::plain;
use crate::environment::build_context::build_context;
use crate::environment::dockerfile::{base_images, needs_buildkit};
use crate::environment::output::Tail;
use crate::environment::transfer::archive::{self, ArchiveEntry};
use crate::environment::{EnvironmentError, error};
use crate::task::Task;

/// The name of all images that rolltap builds. The tag identifies the content.
pub(super) const REPOSITORY: &str = "rolltap-task";

/// Limits concurrent builds, and prevents two builds of the same content at the same time.
pub(super) struct Builds {
    at_once: Semaphore,
    /// A lock per tag.
    same: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Default for Builds {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        // A build uses several cores and the disk itself, so only a few run at once.
        Self { at_once: Semaphore::new(cores.clamp(2, 4)), same: Mutex::default() }
    }
}

impl Builds {
    pub(super) fn of(&self, tag: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut same = self.same.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(same.entry(tag.to_owned()).or_default())
    }

    /// Waits until another build may start. The permit must be held during the build.
    pub(super) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed, so this is never `None`.
        self.at_once.acquire().await.ok()
    }
}

/// The files that are sent to a builder.
struct Context {
    entries: Vec<ArchiveEntry>,
    dockerfile: String,
    /// A hash of names, modes and contents.
    hash: String,
}

impl Context {
    fn read(dir: &Path) -> Result<Self, EnvironmentError> {
        let path = dir.join("Dockerfile");
        let dockerfile = std::fs::read(&path).map_err(EnvironmentError::io("read", path))?;
        let entries = build_context(dir)?;
        let hash = archive::content_hash(&entries)?;
        Ok(Self { entries, dockerfile: String::from_utf8_lossy(&dockerfile).into_owned(), hash })
    }
}

impl Job {
    /// Returns the image of this build context. An earlier build from the same content and on the same base images is
    /// reused, unless `force` is set.
    pub(super) async fn built(
        &self,
        task: &Task,
        dir: &Path,
        force: bool,
    ) -> Result<Facts, EnvironmentError> {
        let context = {
            let dir = dir.to_owned();
            error::blocking(move || Context::read(&dir)).await?
        };
        let tag = tag(&context.hash, &self.base_ids(base_images(&context.dockerfile)).await);
        let name = format!("{REPOSITORY}:{tag}");
        let turn = self.builds.of(&tag);
        // The lock is held during the build, so that a second trial finds the finished image.
        let _turn = turn.lock().await;
        if !force && let Some(facts) = self.find(&name).await? {
            self.note_use(&name).await;
            return Ok(facts);
        }
        // After the lock: a build that waits for the same content must not occupy a place.
        let _place = self.builds.place().await;
        let buildkit = needs_buildkit(&context.dockerfile);
        let archive = error::blocking(move || archive::pack(&context.entries, Path::new(""))).await?;
        match buildkit {
            None => self.build_classic(task, &name, archive).await?,
            Some(instruction) => self.build_by_buildkit(task, &name, archive, instruction).await?,
        }
        self.find(&name).await?.ok_or_else(|| EnvironmentError::Build {
            task: task.name.clone(),
            message: format!("the builder reported success, and there is no image {name}"),
            tail: String::new(),
        })
    }

    /// Returns the base images with their ids, so that a moved tag results in another image. Missing ones are pulled
    /// first, since their ids are needed. If a pull fails, the builder reports the error.
    pub(super) async fn base_ids(&self, images: BTreeSet<String>) -> Vec<(String, String)> {
        let mut ids = Vec::new();
        for image in images {
            let id = match self.image_id(&image).await {
                None => match self.pull(&image).await {
                    Ok(()) => self.image_id(&image).await,
                    Err(error) => {
                        tracing::debug!(image, %error, "a base image cannot be pulled; the builder will try");
                        None
                    }
                },
                id => id,
            };
            ids.extend(id.map(|id| (image, id)));
        }
        ids
    }

    async fn image_id(&self, name: &str) -> Option<String> {
        self.engine.api.inspect_image(name).await.ok()?.id
    }

    /// Tags the image again. The engine stores the time of the last tag, by which `rolltap clean` knows the images in
    /// use.
    pub(super) async fn note_use(&self, name: &str) {
        let Some((repository, tag)) = name.split_once(':') else { return };
        let options = TagImageOptionsBuilder::default().repo(repository).tag(tag).build();
        if let Err(error) = self.engine.api.tag_image(name, Some(options)).await {
            tracing::debug!(name, %error, "cannot record the use of a cached image");
        }
    }

    async fn build_classic(
        &self,
        task: &Task,
        name: &str,
        archive: std::fs::File,
    ) -> Result<(), EnvironmentError> {
        let options = BuildImageOptionsBuilder::default()
            .dockerfile("Dockerfile")
            .t(name)
            .labels(&labels::of_kept_image(&task.name))
            .rm(true)
            .forcerm(true)
            .build();
        let body = bollard::body_try_stream(ReaderStream::new(tokio::fs::File::from_std(archive)));
        let mut log = BuildLog { task: &task.name, tail: Tail::default(), ended: false };
        let mut activity = self.activities.begin("building the image of", &task.name);
        let mut events = Box::pin(self.engine.api.build_image(options, None, Some(body)));
        while let Some(event) = events.next().await {
            let failure = match event {
                Ok(BuildInfo { error_detail: Some(detail), .. }) => detail.message.unwrap_or_default(),
                Ok(BuildInfo { stream, status, .. }) => {
                    let text = stream.or(status.map(|status| status + "\n")).unwrap_or_default();
                    activity.report(text.trim());
                    log.tail.push(&text);
                    continue;
                }
                // Both are messages of the builder, and not errors of the connection.
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
            return Err(build_error(&task.name, failure.trim().to_owned(), &log.tail));
        }
        log.ended = true;
        Ok(())
    }

    /// Builds with Docker's command line, because BuildKit needs a client that answers its requests during the build.
    async fn build_by_buildkit(
        &self,
        task: &Task,
        name: &str,
        archive: std::fs::File,
        instruction: String,
    ) -> Result<(), EnvironmentError> {
        let mut arguments = ["build", "--progress", "plain", "--file", "Dockerfile", "--tag", name]
            .map(OsString::from)
            .to_vec();
        for (label, value) in labels::of_kept_image(&task.name) {
            arguments.extend(["--label".into(), format!("{label}={value}").into()]);
        }
        arguments.push("-".into());
        let mut activity = self.activities.begin("building the image of", &task.name);
        let call = CommandLine::new(&self.engine, arguments).stdin(archive);
        let no_buildkit = |reason: String| EnvironmentError::NoBuildKit {
            task: task.name.clone(),
            instruction: instruction.clone(),
            reason,
        };
        let ended = call
            .run(|line| activity.report(line))
            .await
            .map_err(|error: NoCommandLine| no_buildkit(error.to_string()))?;
        if ended.success {
            return Ok(());
        }
        let lines = ended.said.text();
        if lines.contains("buildx component is missing") || lines.contains("unknown flag: --progress") {
            return Err(no_buildkit("Docker's command line has no buildx plugin".to_owned()));
        }
        // BuildKit prints its summary last, after the output of the failed step.
        let failure = lines.lines().rev().map(str::trim).find_map(|line| line.strip_prefix("ERROR: "));
        let mut message = failure.unwrap_or("the builder failed").to_owned();
        if message.contains("unknown instruction") {
            message.push_str(
                " (this engine's BuildKit may be older than the Dockerfile's syntax: here-documents came with Docker 23, \
                 or with `# syntax=docker/dockerfile:1` in the first line)",
            );
        }
        Err(build_error(&task.name, message, &ended.said))
    }
}

fn build_error(task: &str, message: String, tail: &Tail) -> EnvironmentError {
    EnvironmentError::Build { task: task.to_owned(), message: plain(&message), tail: tail.text() }
}

pub(super) fn tag(content: &str, bases: &[(String, String)]) -> String {
    let mut hash = Sha256::new().chain_update(content.as_bytes());
    // Zero bytes separate the fields, which cannot contain any.
    for (name, id) in bases {
        hash.update([0]);
        hash.update(name.as_bytes());
        hash.update([0]);
        hash.update(id.as_bytes());
    }
    hash.finalize().iter().take(10).map(|byte| format!("{byte:02x}")).collect()
}

/// The output of a build. If the build is cancelled, such as at the environment's timeout, its last lines are logged.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_and_base_images_make_the_tag() {
        let base = |id: &str| [("debian:bookworm".to_owned(), id.to_owned())];
        let first = tag("content", &base("one"));
        assert_eq!(first, tag("content", &base("one")));
        assert_eq!(first.len(), 20);
        for other in [tag("content", &base("two")), tag("other", &base("one")), tag("content", &[])] {
            assert_ne!(first, other);
        }
    }
}

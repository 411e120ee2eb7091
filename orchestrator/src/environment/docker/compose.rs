//! Tasks with several containers: `environment/docker-compose.yaml`, by Docker's compose plugin.
//!
//! The plugin reads the file, builds images and starts services. After that, rolltap uses the engine's API on the
//! container of service `main`. Everything that the plugin creates has the labels of the trial, by which it is removed.

pub(super) mod cleanup;
mod files;
mod project;
mod services;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use files::{base, images, write};
pub(super) use project::{MainContainer, Project};
use services::{Build, MAIN, Services};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::Job;
use super::build::REPOSITORY;
use super::cleanup::labels;
use super::command_line::{CommandEnd, CommandLine};
use crate::common::activity::Activities;
use crate::environment::dockerfile::base_images;
use crate::environment::transfer::archive::{self, walk};
use crate::environment::{EnvironmentError, Mount, Share, error};
use crate::task::Task;

const FILE: &str = "docker-compose.yaml";

/// The actions whose failure is the task's own, as errors name them.
const BUILD: &str = "build";
const USE: &str = "use";

/// A task's services with built images, ready to start.
#[derive(Clone)]
pub(in crate::environment) struct Composed {
    job: Arc<Job>,
    composition: Arc<Composition>,
    /// Directories of this host that the main service can read.
    pub(in crate::environment) shares: Vec<Share>,
    /// Mounts of the user in the main service.
    pub(in crate::environment) mounts: Vec<Mount>,
}

impl std::fmt::Debug for Composed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Composed").field("composition", &self.composition).finish_non_exhaustive()
    }
}

/// The services of a job's tasks, by their build context. A failed build is stored too, and a file that cannot be used.
/// Callers that wait for the same services share every failure.
#[derive(Default)]
pub(super) struct Compositions(Mutex<HashMap<PathBuf, Arc<Outcome>>>);

type Outcome = OnceCell<Result<Arc<Composition>, Arc<EnvironmentError>>>;

/// A task's services with built images.
#[derive(Debug)]
struct Composition {
    services: Services,
    /// The image of each service that is built, by the service's name.
    images: BTreeMap<String, String>,
}

/// Whether a task has several containers.
pub(crate) fn has_services(task: &Task) -> bool {
    task.environment_dir().join(FILE).is_file()
}

/// A call of the plugin with a task's files.
struct ComposeCommand<'a> {
    job: &'a Job,
    task: &'a Task,
    project: &'a str,
    /// The directory of the compose files that rolltap writes.
    dir: &'a Path,
    /// The names of rolltap's files that override the task's file.
    after: &'a [&'a str],
    env: BTreeMap<String, String>,
}

impl ComposeCommand<'_> {
    async fn run(&self, action: &'static str, arguments: &[&str]) -> Result<CommandEnd, EnvironmentError> {
        let environment = self.task.environment_dir();
        let mut all: Vec<OsString> = ["compose", "--ansi", "never", "--progress", "plain", "--project-name"]
            .map(OsString::from)
            .to_vec();
        all.extend([self.project.into(), "--project-directory".into(), environment.clone().into()]);
        // A later file overrides an earlier one.
        let mut files = vec![self.dir.join("base.json"), environment.join(FILE)];
        files.extend(self.after.iter().map(|name| self.dir.join(name)));
        all.extend(files.into_iter().flat_map(|file| ["--file".into(), file.into()]));
        all.extend(arguments.iter().map(OsString::from));
        // Only logged: the phase of the trial shows it on the screen.
        let mut activity = Activities::default().begin("docker compose for", &self.task.name);
        let call = CommandLine::new(&self.job.engine, all).env(&self.env);
        let failed = |message| EnvironmentError::Compose { action, task: self.task.name.clone(), message };
        let ended =
            call.run(|line| activity.report(line)).await.map_err(|error| failed(error.to_string()))?;
        if ended.success {
            return Ok(ended);
        }
        let said = ended.said.text();
        if said.contains("is not a docker command") || said.contains("unknown flag: --project-name") {
            return Err(failed(
                "Docker's command line has no compose plugin (`docker compose version`)".to_owned(),
            ));
        }
        Err(failed(format!("docker compose failed\nits last lines:\n{said}")))
    }
}

impl Compositions {
    /// Returns the composition of a build context. Callers that ask while `make` runs wait for its result.
    async fn of(
        &self,
        dir: PathBuf,
        make: impl Future<Output = Result<Composition, EnvironmentError>>,
    ) -> Result<Arc<Composition>, EnvironmentError> {
        // The lock is held only for the lookup, since the preparation may take minutes.
        let outcome = {
            let mut compositions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(compositions.entry(dir.clone()).or_default())
        };
        let make = async { make.await.map(Arc::new).map_err(Arc::new) };
        outcome.get_or_init(|| make).await.clone().map_err(|error| {
            // Other errors, such as those of the disk or the engine, are not the task's fault, so a later attempt may
            // succeed.
            if !matches!(*error, EnvironmentError::Compose { action: BUILD | USE, .. }) {
                // Only this result is removed, and not that of a newer attempt.
                self.forget_if(&dir, |known| Arc::ptr_eq(known, &outcome));
            }
            EnvironmentError::Shared(error)
        })
    }

    /// Forgets the result for a task. Work in progress continues, and later callers wait for it.
    pub(super) fn forget(&self, task: &Task) {
        self.forget_if(&task.environment_dir(), |outcome| outcome.initialized());
    }

    fn forget_if(&self, dir: &Path, is_meant: impl FnOnce(&Arc<Outcome>) -> bool) {
        let mut compositions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if compositions.get(dir).is_some_and(is_meant) {
            compositions.remove(dir);
        }
    }
}

impl Job {
    /// Returns a task's services, ready to start. Callers that ask during the preparation wait for its result.
    pub(super) async fn composed(
        self: &Arc<Self>,
        task: &Task,
        force: bool,
    ) -> Result<Composed, EnvironmentError> {
        let make = Box::pin(self.compose(task, force));
        let composition = self.compositions.of(task.environment_dir(), make).await?;
        Ok(Composed { job: Arc::clone(self), composition, shares: Vec::new(), mounts: Vec::new() })
    }

    /// Reads a task's services and builds their images, unless an earlier build can be reused.
    async fn compose(&self, task: &Task, force: bool) -> Result<Composition, EnvironmentError> {
        let dir = files_dir()?;
        write(dir.path(), "base.json", &base(task)).map_err(EnvironmentError::io("write to", dir.path()))?;
        let mut call = ComposeCommand {
            job: self,
            task,
            project: "rolltap-build",
            dir: dir.path(),
            after: &[],
            env: variables(task, &BTreeMap::new(), dir.path()),
        };
        let told = call.run("read", &["config", "--format", "json"]).await?;
        let wrong = |message| EnvironmentError::Compose { action: USE, task: task.name.clone(), message };
        let services = Services::parse(&told.stdout).map_err(wrong)?;
        // Such a service would not be on the isolated network.
        if let Some(escape) = services.escapes().filter(|_| !task.network.is_always_public()) {
            return Err(wrong(format!("the task restricts the network, and {escape}")));
        }
        let (tag, kept) = self.tag_of(task, &services).await?;
        let images: BTreeMap<_, _> = services
            .built()
            .map(|(name, _)| (name.to_owned(), format!("{REPOSITORY}:{tag}-{name}")))
            .collect();
        // The lock is held during the build, so that a second trial finds the finished images.
        let turn = self.builds.of(&tag);
        let _turn = turn.lock().await;
        if force || !kept || !self.have_all(&images).await? {
            let _place = self.builds.place().await;
            let file = self::images(&images, &labels::of_kept_image(&task.name));
            write(dir.path(), "images.json", &file).map_err(EnvironmentError::io("write to", dir.path()))?;
            call.after = &["images.json"];
            call.run(BUILD, &["build"]).await?;
        }
        Ok(Composition { services, images })
    }

    async fn have_all(&self, images: &BTreeMap<String, String>) -> Result<bool, EnvironmentError> {
        for name in images.values() {
            if self.find(name).await?.is_none() {
                return Ok(false);
            }
            self.note_use(name).await;
        }
        Ok(true)
    }

    /// Returns a tag for everything that the images are built from, and whether the tag is complete. Only then may an
    /// image with this tag be reused.
    async fn tag_of(&self, task: &Task, services: &Services) -> Result<(String, bool), EnvironmentError> {
        let dir = task.environment_dir();
        let hash = {
            let dir = dir.clone();
            error::blocking(move || archive::content_hash(&walk(&dir)?)).await?
        };
        let mut bases = Vec::new();
        let mut kept = true;
        for (_, build) in services.built() {
            match dockerfile(build, &dir) {
                Some(text) => bases.extend(self.base_ids(base_images(&text)).await),
                None => kept = false,
            }
        }
        Ok((super::build::tag(&hash, &bases), kept))
    }
}

/// Returns the text of a service's Dockerfile, or `None` if its build context is outside the task's environment or the
/// file cannot be read.
fn dockerfile(build: &Build, environment: &Path) -> Option<String> {
    let context = build.context.canonicalize().ok()?;
    if !context.starts_with(environment.canonicalize().ok()?) {
        return None;
    }
    if let Some(text) = &build.dockerfile_inline {
        return Some(text.clone());
    }
    let file = build.dockerfile.clone().unwrap_or_else(|| PathBuf::from("Dockerfile"));
    std::fs::read_to_string(context.join(file)).ok()
}

fn files_dir() -> Result<TempDir, EnvironmentError> {
    tempfile::Builder::new()
        .prefix("rolltap-compose-")
        .tempdir()
        .map_err(EnvironmentError::io("create a directory in", std::env::temp_dir()))
}

/// Returns the variables that a task's file may use: the task's own variables, and Harbor's.
fn variables(task: &Task, images: &BTreeMap<String, String>, logs: &Path) -> BTreeMap<String, String> {
    let config = &task.config.environment;
    let mut variables = config.env.clone();
    let main = images.get(MAIN).cloned().or_else(|| config.docker_image.clone());
    let own = [
        ("CONTEXT_DIR", Some(task.environment_dir().display().to_string())),
        ("MAIN_IMAGE_NAME", Some(main.unwrap_or_else(|| format!("{REPOSITORY}:main")))),
        ("PREBUILT_IMAGE_NAME", config.docker_image.clone()),
        ("CPUS", config.cpus.map(|cpus| cpus.to_string())),
        ("MEMORY", config.memory_mb.map(|memory| format!("{memory}M"))),
    ];
    variables.extend(own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    for (name, directory) in
        [("AGENT_LOGS", "agent"), ("VERIFIER_LOGS", "verifier"), ("ARTIFACTS", "artifacts")]
    {
        variables.insert(format!("HOST_{name}_PATH"), logs.join(directory).display().to_string());
        variables.insert(format!("ENV_{name}_PATH"), format!("/logs/{directory}"));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_failure_that_is_the_tasks_own_is_stored() {
        let of_compose = |action| EnvironmentError::Compose {
            action,
            task: "t".to_owned(),
            message: "on purpose".to_owned(),
        };
        let of_disk = EnvironmentError::Io {
            action: "write to",
            path: "/tmp".into(),
            source: std::io::Error::other("full"),
        };
        for (error, is_stored) in [
            (of_compose(BUILD), true),
            (of_compose(USE), true),
            (of_compose("read"), false),
            (of_disk, false),
        ] {
            let (compositions, told) = (Compositions::default(), error.to_string());
            let first = compositions.of("/task".into(), async { Err(error) }).await.unwrap_err();
            assert_eq!(first.to_string(), told);
            let mut is_tried_again = false;
            let again = async {
                is_tried_again = true;
                Err(of_compose(BUILD))
            };
            compositions.of("/task".into(), again).await.unwrap_err();
            assert_eq!(is_tried_again, !is_stored, "{told}");
        }
    }
}

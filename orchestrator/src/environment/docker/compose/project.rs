//! The services of one trial: their start, lookup and removal.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use bollard::models::NetworkConnectRequest;
use bollard::query_parameters::{InspectContainerOptions, ListContainersOptions};
use tempfile::TempDir;
use uuid::Uuid;

use super::files::{Overlay, base, images, write};
use super::services::MAIN;
use super::{ComposeCommand, Composed, Composition, files_dir, variables};
use crate::environment::docker::Job;
use crate::environment::docker::cleanup::labels::{self, PROJECT, unique_name};
use crate::environment::docker::cleanup::sweep::remove_labelled;
use crate::environment::docker::container::Container;
use crate::environment::docker::network::access::NetworkAccess;
use crate::environment::docker::network::shared::{Access, create_for_services};
use crate::environment::{EnvironmentError, TrialLabel};
use crate::task::Task;

/// The services of one trial. [`Project::remove`] removes them, or the end of the job does by their labels.
pub(in crate::environment::docker) struct Project {
    job: Arc<Job>,
    name: String,
    /// The directory of the compose files, and of log directories that services may mount.
    dir: TempDir,
}

impl Composed {
    /// Starts the services for one trial and returns the container of the main one. If that fails, nothing remains.
    pub(in crate::environment) async fn start(
        &self,
        task: &Task,
        trial: &TrialLabel,
    ) -> Result<Container, EnvironmentError> {
        let name = unique_name(&trial.0, Uuid::now_v7());
        let project = Project { job: Arc::clone(&self.job), name, dir: files_dir()? };
        let access = NetworkAccess::of(&self.job, &task.network).await?;
        let main = match Box::pin(project.up(self, task, trial, &access)).await {
            Ok(main) => main,
            Err(error) => {
                if let Err(left) = project.remove().await {
                    tracing::warn!(error = %left, "services that did not start are left until the job ends");
                }
                return Err(error);
            }
        };
        let container = Container::of_project(project, main, access);
        match container.set_network(&task.network.environment).await {
            Ok(()) => Ok(container),
            Err(error) => Err(container.given_up(error).await),
        }
    }
}

impl Project {
    async fn up(
        &self,
        composed: &Composed,
        task: &Task,
        trial: &TrialLabel,
        access: &NetworkAccess,
    ) -> Result<MainContainer, EnvironmentError> {
        let Composition { services, images: built } = &*composed.composition;
        let mut labels = self.job.labels.of_trial(trial);
        labels.insert(PROJECT.to_owned(), self.name.clone());
        // The engine's own address pools are small, so the network gets an address of rolltap's range.
        let network = if services.has_plain_default_network() {
            let reach = if task.network.is_always_public() { Access::World } else { Access::Gateway };
            create_for_services(&self.job.engine, &self.name, labels.clone(), reach).await?;
            Some(self.name.as_str())
        } else {
            None
        };
        let name_servers = access.name_servers(&self.job);
        let (shares, mounts) = (&composed.shares, &composed.mounts);
        let overlay = Overlay { task, services, labels, network, name_servers, shares, mounts };
        let dir = self.dir.path();
        let written = write(dir, "base.json", &base(task))
            .and_then(|()| write(dir, "images.json", &images(built, &labels::of_kept_image(&task.name))))
            .and_then(|()| write(dir, "trial.json", &overlay.json()))
            .and_then(|()| self.make_log_directories());
        written.map_err(EnvironmentError::io("write to", dir))?;
        let call = ComposeCommand {
            job: &self.job,
            task,
            project: &self.name,
            dir,
            after: &["images.json", "trial.json"],
            env: variables(task, built, dir),
        };
        // `--wait` waits until the services are running and healthy.
        call.run("start", &["up", "--detach", "--wait", "--no-build"]).await?;
        let id = self.container_of(MAIN).await?;
        // Compose has put the service on the trial's own networks only.
        if let Some(isolated) = access.isolated_network(&self.job) {
            let request = NetworkConnectRequest { container: id.clone(), endpoint_config: None };
            let connected = self.job.engine.api.connect_network(&isolated, request).await;
            connected.map_err(EnvironmentError::engine("connect a container to the job's network"))?;
        }
        let inspected = self.job.engine.api.inspect_container(&id, None::<InspectContainerOptions>).await;
        let inspected = inspected.map_err(EnvironmentError::engine("look at the main service"))?;
        let config = inspected.config.unwrap_or_default();
        let workdir = task.config.environment.workdir.clone();
        let workdir = workdir.or(config.working_dir.filter(|dir| !dir.is_empty()));
        Ok(MainContainer {
            id,
            workdir: workdir.unwrap_or_else(|| "/".to_owned()),
            user: config.user.unwrap_or_default(),
        })
    }

    /// Creates Harbor's log directories for compose files that mount them. Every user of every service may write there.
    fn make_log_directories(&self) -> std::io::Result<()> {
        for name in ["agent", "verifier", "artifacts"] {
            let dir = self.dir.path().join(name);
            std::fs::create_dir(&dir)?;
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777))?;
        }
        Ok(())
    }

    /// Returns the id of a service's container.
    pub(in crate::environment::docker) async fn container_of(
        &self,
        service: &str,
    ) -> Result<String, EnvironmentError> {
        let labels =
            vec![format!("{PROJECT}={}", self.name), format!("com.docker.compose.service={service}")];
        let filters = Some(HashMap::from([("label".to_owned(), labels)]));
        let options = ListContainersOptions { all: true, filters, ..ListContainersOptions::default() };
        let found = self.job.engine.api.list_containers(Some(options)).await;
        let found = found.map_err(EnvironmentError::engine("list the services of a trial"))?;
        let id = found.into_iter().find_map(|container| container.id);
        id.ok_or_else(|| EnvironmentError::NoSuchService(service.to_owned()))
    }

    /// Removes the containers, networks and volumes at once, without a grace period.
    pub(in crate::environment::docker) async fn remove(&self) -> Result<(), EnvironmentError> {
        let problems = remove_labelled(&self.job.engine, &format!("{PROJECT}={}", self.name)).await;
        if problems.is_empty() { Ok(()) } else { Err(EnvironmentError::Leftovers(problems)) }
    }

    pub(in crate::environment::docker) fn job(&self) -> &Arc<Job> {
        &self.job
    }
}

/// The container of the main service.
pub(in crate::environment::docker) struct MainContainer {
    pub(in crate::environment::docker) id: String,
    pub(in crate::environment::docker) workdir: String,
    /// The user name. Empty for root.
    pub(in crate::environment::docker) user: String,
}

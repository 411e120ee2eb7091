//! Containers that Harbor starts by compose: the settings that rolltap adds to them, and the removal of leftovers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use bollard::errors::Error;
use bollard::query_parameters::{ListContainersOptions, ListImagesOptions, RemoveImageOptions};
use serde_json::{Value, json};

use crate::environment::docker::cleanup::inventory::find;
use crate::environment::docker::cleanup::labels::{self, Labels};
use crate::environment::docker::cleanup::process_owner::OwnerState;
use crate::environment::docker::cleanup::sweep::{remove, remove_labelled, sweep_dead_runs, tolerate};
use crate::environment::docker::engine::Engine;
use crate::environment::docker::network::shared::{Access, Network};
use crate::environment::{EnvironmentError, JobLabel};

/// The label of every object of a compose project. Its value is the project's name.
const PROJECT: &str = "com.docker.compose.project";

/// One job's compose projects at an engine. Harbor creates a project for each environment and names it after the trial.
pub(crate) struct ComposeProjects {
    engine: Engine,
    labels: Labels,
    /// The shared network. Harbor's containers are not on it, but they reach its gateway, which is an address of this
    /// host, from every network.
    network: Network,
}

impl ComposeProjects {
    /// Connects to the engine, and removes the projects and objects of dead jobs of this machine.
    pub(crate) async fn connect(job: &JobLabel) -> Result<Self, EnvironmentError> {
        let engine = Engine::connect().await?;
        // Leftovers must not prevent a new job.
        for project in dead_projects(&engine).await.unwrap_or_default() {
            if let Err(error) = remove_project(&engine, &project).await {
                tracing::warn!(project, %error, "cannot remove what a dead run had left behind");
            }
        }
        sweep_dead_runs(&engine).await;
        let labels = Labels::new(job);
        let network = Network::shared(&engine, Access::World).await?;
        Ok(Self { engine, labels, network })
    }

    /// Returns an address of this host that every container reaches.
    pub(crate) fn gateway(&self) -> IpAddr {
        self.network.gateway
    }

    /// Returns a compose file that is added to that of each environment. Its first process forwards signals, so that
    /// stopping takes at most a second. Its labels distinguish the leftovers of dead jobs from the objects of running
    /// ones.
    pub(crate) fn overlay(&self) -> Value {
        let labels: BTreeMap<_, _> = self.labels.of_job().into_iter().collect();
        json!({
            "services": {"main": {"init": true, "stop_grace_period": "1s", "labels": labels}},
            "networks": {"default": {"labels": labels}},
        })
    }

    /// Removes every project of a trial. Succeeds if there is none.
    pub(crate) async fn remove(&self, trial: &str) -> Result<(), EnvironmentError> {
        // Harbor's project names begin with the trial's name and this separator.
        let prefix = format!("{}__", project_name(trial));
        let mut projects = all_projects(&self.engine).await.map_err(list())?;
        projects.retain(|name| name.starts_with(&prefix));
        for project in projects {
            remove_project(&self.engine, &project).await?;
        }
        Ok(())
    }

    /// Removes every object with the job's labels.
    pub(crate) async fn close(&self) -> Result<(), EnvironmentError> {
        leftovers(remove_labelled(&self.engine, &self.labels.filter()).await)
    }
}

fn leftovers(problems: Vec<String>) -> Result<(), EnvironmentError> {
    if problems.is_empty() { Ok(()) } else { Err(EnvironmentError::Leftovers(problems)) }
}

/// Converts a name to Harbor's spelling for compose. Names of trials begin with a letter or digit.
fn project_name(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.chars().map(|c| if fits(c) { c.to_ascii_lowercase() } else { '-' }).collect()
}

/// Returns the projects with a container of a job whose process has ended.
async fn dead_projects(engine: &Engine) -> Result<BTreeSet<String>, Error> {
    let filters = Some(HashMap::from([("label".to_owned(), vec![labels::ANY.to_owned()])]));
    let options = ListContainersOptions { all: true, filters, ..ListContainersOptions::default() };
    let listed = engine.api.list_containers(Some(options)).await?;
    let of_dead = listed.into_iter().filter_map(|item| {
        let labels = item.labels.unwrap_or_default();
        let is_dead = labels::owner_state(&labels, engine.is_here()) == Some(OwnerState::Gone);
        labels.get(PROJECT).filter(|_| is_dead).cloned()
    });
    Ok(of_dead.collect())
}

/// Removes the containers, networks, volumes and images of a project.
async fn remove_project(engine: &Engine, project: &str) -> Result<(), EnvironmentError> {
    let label = format!("{PROJECT}={project}");
    let found = find(engine, &label).await.map_err(list())?;
    let mut problems = Vec::new();
    // `find` lists containers first, which is the order in which objects can be removed.
    for found in found {
        let removed = remove(&engine.api, &found).await;
        problems.extend(removed.err().map(|error| format!("{} {}: {error}", found.kind, found.name)));
    }
    problems.extend(remove_images(engine, &label).await);
    leftovers(problems)
}

fn list() -> impl FnOnce(Error) -> EnvironmentError {
    EnvironmentError::engine("list compose projects")
}

async fn all_projects(engine: &Engine) -> Result<BTreeSet<String>, Error> {
    let filters = HashMap::from([("label".to_owned(), vec![PROJECT.to_owned()])]);
    let containers = ListContainersOptions {
        all: true,
        filters: Some(filters.clone()),
        ..ListContainersOptions::default()
    };
    // A project without containers may still have networks and images.
    let networks = bollard::query_parameters::ListNetworksOptions { filters: Some(filters.clone()) };
    let images = ListImagesOptions { filters: Some(filters), ..ListImagesOptions::default() };
    let (containers, networks, images) = tokio::try_join!(
        engine.api.list_containers(Some(containers)),
        engine.api.list_networks(Some(networks)),
        engine.api.list_images(Some(images))
    )?;
    let labels = containers.into_iter().filter_map(|item| item.labels);
    let labels = labels.chain(networks.into_iter().filter_map(|item| item.labels));
    let labels = labels.chain(images.into_iter().map(|item| item.labels));
    Ok(labels.filter_map(|labels| labels.get(PROJECT).cloned()).collect())
}

/// Removes the images that compose built for the project. An image that the task names has no such label.
async fn remove_images(engine: &Engine, label: &str) -> Vec<String> {
    let filters = Some(HashMap::from([("label".to_owned(), vec![label.to_owned()])]));
    let options = ListImagesOptions { filters, ..ListImagesOptions::default() };
    let listed = match engine.api.list_images(Some(options)).await {
        Ok(listed) => listed,
        Err(error) => return vec![format!("cannot list images: {error}")],
    };
    let mut problems = Vec::new();
    for image in listed {
        // An image with several names can only be removed by force.
        let options = RemoveImageOptions { force: true, ..RemoveImageOptions::default() };
        let removed = engine.api.remove_image(&image.id, Some(options), None).await.map(drop);
        problems.extend(tolerate(removed, &[404]).err().map(|error| format!("image {}: {error}", image.id)));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_are_named_as_harbor_names_them() {
        assert_eq!(project_name("Fix.It_now-1__aB3"), "fix-it_now-1__ab3");
    }
}

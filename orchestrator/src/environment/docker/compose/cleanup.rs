//! Containers that Harbor starts by compose: what it is told of them, and the removal of what it left.

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

/// On everything of a compose project; its value is the project's name.
const PROJECT: &str = "com.docker.compose.project";

/// One job's compose projects at an engine. Harbor makes one for each environment and names it after the trial.
pub(crate) struct ComposeProjects {
    engine: Engine,
    labels: Labels,
    /// No container of Harbor's is on it: it has an address of this host that containers of every network reach, wherever the
    /// engine is.
    network: Network,
}

impl ComposeProjects {
    /// Finds the engine, and removes what jobs of this machine left there that died.
    pub(crate) async fn connect(job: &JobLabel) -> Result<Self, EnvironmentError> {
        let engine = Engine::connect().await?;
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

    /// This host, as every container reaches it.
    pub(crate) fn gateway(&self) -> IpAddr {
        self.network.gateway
    }

    /// A compose file to be laid over each environment's: its first process forwards signals and need not be waited for,
    /// and what dead runs leave can be told from what living ones have.
    pub(crate) fn overlay(&self) -> Value {
        let labels: BTreeMap<_, _> = self.labels.of_job().into_iter().collect();
        json!({
            "services": {"main": {"init": true, "stop_grace_period": "1s", "labels": labels}},
            "networks": {"default": {"labels": labels}},
        })
    }

    /// Removes every project of a trial. Fine if there is none.
    pub(crate) async fn remove(&self, trial: &str) -> Result<(), EnvironmentError> {
        let prefix = format!("{}__", project_name(trial));
        let mut projects = all_projects(&self.engine).await.map_err(list())?;
        projects.retain(|name| name.starts_with(&prefix));
        for project in projects {
            remove_project(&self.engine, &project).await?;
        }
        Ok(())
    }

    /// Removes what the job's labels are on.
    pub(crate) async fn close(&self) -> Result<(), EnvironmentError> {
        leftovers(remove_labelled(&self.engine, &self.labels.filter()).await)
    }
}

fn leftovers(problems: Vec<String>) -> Result<(), EnvironmentError> {
    if problems.is_empty() { Ok(()) } else { Err(EnvironmentError::Leftovers(problems)) }
}

/// Harbor's spelling of a name for compose. Trials' names begin with a letter or digit.
fn project_name(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.chars().map(|c| if fits(c) { c.to_ascii_lowercase() } else { '-' }).collect()
}

/// The projects with a container of ours whose process is no more.
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
    // Containers first: `find` lists them in the order in which they can be removed.
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

/// Those that compose built for the project; a task's own image bears no such label.
async fn remove_images(engine: &Engine, label: &str) -> Vec<String> {
    let filters = Some(HashMap::from([("label".to_owned(), vec![label.to_owned()])]));
    let options = ListImagesOptions { filters, ..ListImagesOptions::default() };
    let listed = match engine.api.list_images(Some(options)).await {
        Ok(listed) => listed,
        Err(error) => return vec![format!("cannot list images: {error}")],
    };
    let mut problems = Vec::new();
    for image in listed {
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

//! Removes rolltap's objects at the engine, by label.

use std::collections::HashMap;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::query_parameters::{
    InspectNetworkOptions, RemoveContainerOptions, RemoveImageOptions, RemoveVolumeOptions,
};
use futures_util::{StreamExt, stream};

use super::inventory::{EngineObject, FoundKind, find};
use super::labels;
use super::process_owner::OwnerState;
use crate::environment::docker::engine::Engine;

/// The most concurrent removals.
const AT_ONCE: usize = 8;
/// The most attempts to remove a network, which stays busy for a moment after its last container.
const NETWORK_TRIES: u32 = 30;
const NETWORK_PAUSE: Duration = Duration::from_millis(100);
/// The number of times that a network must be busy without containers. An endpoint may disappear between two requests.
const MISCOUNTS: u32 = 3;

/// Kills and removes a container and its volumes. Succeeds if it is gone already, or is being removed.
pub(crate) async fn remove_container(api: &Docker, id: &str) -> Result<(), Error> {
    let options = RemoveContainerOptions { force: true, v: true, link: false };
    tolerate(api.remove_container(id, Some(options)).await, &[404, 409])
}

/// Removes one object. Succeeds if it is gone already. An image, network or volume that a container uses is an error.
pub(crate) async fn remove(api: &Docker, found: &EngineObject) -> Result<(), Error> {
    match found.kind {
        FoundKind::Container => remove_container(api, &found.id).await,
        FoundKind::Network => remove_network(api, &found.id).await,
        FoundKind::Volume => {
            tolerate(api.remove_volume(&found.id, None::<RemoveVolumeOptions>).await, &[404])
        }
        FoundKind::Image => {
            let removed = api.remove_image(&found.name, None::<RemoveImageOptions>, None).await;
            tolerate(removed.map(drop), &[404])
        }
    }
}

/// Removes all of these objects, containers first. Returns one message per object that could not be removed.
pub(crate) async fn remove_all(api: &Docker, found: &[EngineObject]) -> Vec<String> {
    let mut problems = Vec::new();
    // The engine removes a network or volume only if no container uses it.
    for kind in [FoundKind::Container, FoundKind::Network, FoundKind::Volume, FoundKind::Image] {
        let of_kind = found.iter().filter(|found| found.kind == kind).cloned();
        let removals: Vec<_> = of_kind.map(|found| try_to_remove(api.clone(), found)).collect();
        let failed = stream::iter(removals).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
        problems.extend(failed.into_iter().flatten());
    }
    problems
}

/// Removes one object and returns the error, if any. Takes owned values, so that many removals can run at once.
async fn try_to_remove(api: Docker, found: EngineObject) -> Option<String> {
    remove(&api, &found).await.err().map(|error| format!("{} {}: {error}", found.kind, found.name))
}

/// Removes all containers, networks and volumes with a label. Returns one message per object that could not be removed.
pub(crate) async fn remove_labelled(engine: &Engine, label: &str) -> Vec<String> {
    match find(engine, label).await {
        Ok(found) => remove_all(&engine.api, &found).await,
        Err(error) => vec![format!("cannot list what there is: {error}")],
    }
}

/// Removes the objects of jobs on this machine whose process has ended.
pub(crate) async fn sweep_dead_runs(engine: &Engine) {
    let found = match find(engine, labels::ANY).await {
        Ok(found) => found,
        Err(error) => {
            return tracing::warn!(%error, "cannot look for leftovers of dead runs at the Docker engine");
        }
    };
    let mut dead = HashMap::<_, Vec<_>>::new();
    // An object of an unseen process may belong to a running job.
    for found in found.into_iter().filter(|found| found.owner == Some(OwnerState::Gone)) {
        dead.entry(found.job.clone().unwrap_or_default()).or_default().push(found);
    }
    for (job, found) in dead {
        let problems = remove_all(&engine.api, &found).await;
        if problems.is_empty() {
            tracing::info!(job, things = found.len(), "removed what a dead run had left behind");
        } else {
            let problems = problems.join("; ");
            tracing::warn!(job, problems, "cannot remove all that a dead run had left behind");
        }
    }
}

/// Removes a network, and retries while containers are on it. If the engine reports endpoints and no container is
/// there, its count is wrong and stays so until the engine restarts. Then the retries end early.
async fn remove_network(api: &Docker, name: &str) -> Result<(), Error> {
    let mut miscounts = 0;
    for _ in 1..NETWORK_TRIES {
        match tolerate(api.remove_network(name).await, &[404]) {
            // The message is "has active endpoints".
            Err(Error::DockerResponseServerError { status_code: 403 | 409, .. }) => {}
            other => return other,
        }
        miscounts += u32::from(!has_containers(api, name).await);
        if miscounts == MISCOUNTS {
            break;
        }
        tokio::time::sleep(NETWORK_PAUSE).await;
    }
    tolerate(api.remove_network(name).await, &[404])
}

async fn has_containers(api: &Docker, network: &str) -> bool {
    let inspected = api.inspect_network(network, None::<InspectNetworkOptions>).await;
    inspected.is_ok_and(|network| network.containers.is_some_and(|containers| !containers.is_empty()))
}

pub(crate) fn tolerate(result: Result<(), Error>, codes: &[u16]) -> Result<(), Error> {
    match result {
        Err(Error::DockerResponseServerError { status_code, .. }) if codes.contains(&status_code) => Ok(()),
        other => other,
    }
}

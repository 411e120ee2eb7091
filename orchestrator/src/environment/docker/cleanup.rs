//! Removing what is ours at the engine, by label.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::query_parameters::{
    ListContainersOptions, ListImagesOptions, ListNetworksOptions, RemoveContainerOptions, RemoveImageOptions,
};
use futures_util::{StreamExt, stream};

use super::labels;

/// Removals that the engine is asked for at once.
const AT_ONCE: usize = 8;
/// A network stays busy for a moment after its last container.
const NETWORK_TRIES: u32 = 30;
const NETWORK_PAUSE: Duration = Duration::from_millis(100);

/// Kills and removes a container and its volumes. Fine if it is gone, or about to be.
pub(super) async fn remove_container(api: &Docker, id: &str) -> Result<(), Error> {
    let options = RemoveContainerOptions { force: true, v: true, link: false };
    tolerate(api.remove_container(id, Some(options)).await, &[404, 409])
}

/// Removes all containers, networks and images with a label, in this order. Returns what could not be removed, and why.
pub(super) async fn remove_labelled(api: &Docker, label: &str) -> Vec<String> {
    let mut problems = Vec::new();
    match containers(api, label).await {
        Ok(found) => {
            let removals = found.into_keys().map(|id| async move {
                remove_container(api, &id).await.err().map(|error| format!("container {id}: {error}"))
            });
            problems.extend(
                stream::iter(removals)
                    .buffer_unordered(AT_ONCE)
                    .filter_map(|problem| async { problem })
                    .collect::<Vec<_>>()
                    .await,
            );
        }
        Err(error) => problems.push(format!("cannot list containers: {error}")),
    }
    match networks(api, label).await {
        Ok(found) => {
            for name in found.into_keys() {
                problems.extend(
                    remove_network(api, &name).await.err().map(|error| format!("network {name}: {error}")),
                );
            }
        }
        Err(error) => problems.push(format!("cannot list networks: {error}")),
    }
    match images(api, label).await {
        Ok(found) => {
            for id in found.into_keys() {
                let options = RemoveImageOptions { force: true, ..RemoveImageOptions::default() };
                let removed = api.remove_image(&id, Some(options), None).await.map(drop);
                problems.extend(tolerate(removed, &[404]).err().map(|error| format!("image {id}: {error}")));
            }
        }
        Err(error) => problems.push(format!("cannot list images: {error}")),
    }
    problems
}

/// Removes what runs of this host left behind whose process is no more.
pub(super) async fn sweep_dead_runs(api: &Docker) {
    let listed = async {
        let (containers, networks, images) = tokio::try_join!(
            containers(api, labels::ANY),
            networks(api, labels::ANY),
            images(api, labels::ANY)
        )?;
        let all = containers.into_values().chain(networks.into_values()).chain(images.into_values());
        Ok::<_, Error>(
            all.filter_map(|labels| labels::dead_run(&labels).map(str::to_owned)).collect::<BTreeSet<_>>(),
        )
    };
    let dead = match listed.await {
        Ok(dead) => dead,
        Err(error) => {
            return tracing::warn!(%error, "cannot look for leftovers of dead runs at the Docker engine");
        }
    };
    for run in dead {
        let problems = remove_labelled(api, &labels::run_filter(&run)).await;
        if problems.is_empty() {
            tracing::info!(run, "removed containers, networks and images that a dead run had left behind");
        } else {
            tracing::warn!(
                run,
                problems = problems.join("; "),
                "cannot remove all that a dead run had left behind"
            );
        }
    }
}

/// By name or id, with the labels of each.
type Found = HashMap<String, HashMap<String, String>>;

fn label_filter(label: &str) -> Option<HashMap<String, Vec<String>>> {
    Some(HashMap::from([("label".to_owned(), vec![label.to_owned()])]))
}

async fn containers(api: &Docker, label: &str) -> Result<Found, Error> {
    let options =
        ListContainersOptions { all: true, filters: label_filter(label), ..ListContainersOptions::default() };
    let found = api.list_containers(Some(options)).await?;
    Ok(found.into_iter().filter_map(|item| Some((item.id?, item.labels.unwrap_or_default()))).collect())
}

async fn networks(api: &Docker, label: &str) -> Result<Found, Error> {
    let found = api.list_networks(Some(ListNetworksOptions { filters: label_filter(label) })).await?;
    Ok(found.into_iter().filter_map(|item| Some((item.id?, item.labels.unwrap_or_default()))).collect())
}

async fn images(api: &Docker, label: &str) -> Result<Found, Error> {
    let options = ListImagesOptions { filters: label_filter(label), ..ListImagesOptions::default() };
    Ok(api.list_images(Some(options)).await?.into_iter().map(|item| (item.id, item.labels)).collect())
}

async fn remove_network(api: &Docker, name: &str) -> Result<(), Error> {
    for _ in 1..NETWORK_TRIES {
        match tolerate(api.remove_network(name).await, &[404]) {
            // "has active endpoints"
            Err(Error::DockerResponseServerError { status_code: 403 | 409, .. }) => {}
            other => return other,
        }
        tokio::time::sleep(NETWORK_PAUSE).await;
    }
    tolerate(api.remove_network(name).await, &[404])
}

fn tolerate(result: Result<(), Error>, codes: &[u16]) -> Result<(), Error> {
    match result {
        Err(Error::DockerResponseServerError { status_code, .. }) if codes.contains(&status_code) => Ok(()),
        other => other,
    }
}

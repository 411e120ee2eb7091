//! Finds rolltap's objects at the engine.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use bollard::errors::Error;
use bollard::query_parameters::{
    ListContainersOptions, ListImagesOptions, ListNetworksOptions, ListVolumesOptions,
};
use jiff::Timestamp;
use serde::Serialize;

use super::labels;
use super::process_owner::OwnerState;
use crate::environment::docker::engine::Engine;

/// The kind of an object at the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FoundKind {
    /// A container of a trial.
    Container,
    /// A network of a trial's services, or a shared network, which remains after its jobs.
    Network,
    /// A volume of a task with several containers.
    Volume,
    /// An image that was built for a task and remains.
    Image,
}

impl fmt::Display for FoundKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Container => "container",
            Self::Network => "network",
            Self::Volume => "volume",
            Self::Image => "image",
        })
    }
}

/// An object of rolltap at the engine.
#[derive(Clone, Debug, Serialize)]
pub struct EngineObject {
    /// The kind.
    pub kind: FoundKind,
    /// The name, for people.
    pub name: String,
    /// The id, for the engine.
    pub id: String,
    /// The job of the object. `None` for objects that outlive their job.
    pub job: Option<String>,
    /// The trial of the object.
    pub trial: Option<String>,
    /// The task for which a remaining image was first built.
    pub task: Option<String>,
    /// Whether the job's process still runs. `None` for objects that outlive their job.
    pub owner: Option<OwnerState>,
    /// The size of an image, including its base.
    pub bytes: Option<u64>,
    /// The time at which a job last used a remaining image.
    pub last_used: Option<Timestamp>,
}

impl EngineObject {
    /// Returns the time since a job last used a remaining image, if it is known.
    pub fn unused_for(&self) -> Option<Duration> {
        let used = self.last_used?;
        Some(Timestamp::now().duration_since(used).try_into().unwrap_or_default())
    }

    fn new(
        kind: FoundKind,
        name: String,
        id: String,
        found: &HashMap<String, String>,
        engine: &Engine,
    ) -> Self {
        let label = |name| found.get(name).cloned();
        Self {
            kind,
            name,
            id,
            job: label(labels::JOB),
            trial: label(labels::TRIAL),
            task: label(labels::TASK),
            owner: labels::owner_state(found, engine.is_here()),
            bytes: None,
            last_used: None,
        }
    }
}

/// Returns the containers, networks and volumes with a label, in this order.
pub(crate) async fn find(engine: &Engine, label: &str) -> Result<Vec<EngineObject>, Error> {
    let filters = Some(HashMap::from([("label".to_owned(), vec![label.to_owned()])]));
    let containers =
        ListContainersOptions { all: true, filters: filters.clone(), ..ListContainersOptions::default() };
    let networks = ListNetworksOptions { filters: filters.clone() };
    let (containers, networks, volumes) = tokio::try_join!(
        engine.api.list_containers(Some(containers)),
        engine.api.list_networks(Some(networks)),
        engine.api.list_volumes(Some(ListVolumesOptions { filters }))
    )?;
    let containers = containers.into_iter().filter_map(|item| {
        let (id, name) = (item.id?, item.names.unwrap_or_default().into_iter().next());
        let name = name.map_or_else(|| id.clone(), |name| name.trim_start_matches('/').to_owned());
        Some(EngineObject::new(FoundKind::Container, name, id, &item.labels.unwrap_or_default(), engine))
    });
    let networks = networks.into_iter().filter_map(|item| {
        let labels = item.labels.unwrap_or_default();
        Some(EngineObject::new(FoundKind::Network, item.name?, item.id?, &labels, engine))
    });
    let volumes =
        volumes.volumes.unwrap_or_default().into_iter().map(|item| {
            EngineObject::new(FoundKind::Volume, item.name.clone(), item.name, &item.labels, engine)
        });
    Ok(containers.chain(networks).chain(volumes).collect())
}

/// Returns the images that remain for later jobs.
pub(crate) async fn kept_images(engine: &Engine) -> Result<Vec<EngineObject>, Error> {
    let filters = Some(HashMap::from([("label".to_owned(), vec![labels::KEPT_IMAGE.to_owned()])]));
    let options = ListImagesOptions { filters, ..ListImagesOptions::default() };
    let mut found = Vec::new();
    for item in engine.api.list_images(Some(options)).await? {
        // The image may have been removed since the listing.
        let Some(inspected) = engine.api.inspect_image(&item.id).await.ok() else { continue };
        let used = inspected.metadata.and_then(|metadata| metadata.last_tag_time);
        let used = used.and_then(|time| time.parse::<Timestamp>().ok());
        // An image of an interrupted build has no name, so its id is used.
        let names = if item.repo_tags.is_empty() { vec![item.id.clone()] } else { item.repo_tags };
        for name in names.into_iter().filter(|name| name.as_str() != "<none>:<none>") {
            let image = EngineObject::new(FoundKind::Image, name, item.id.clone(), &item.labels, engine);
            found.push(EngineObject { bytes: u64::try_from(item.size).ok(), last_used: used, ..image });
        }
    }
    Ok(found)
}

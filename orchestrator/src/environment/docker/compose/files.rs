//! The compose files before and after a task's own file.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::services::{MAIN, Services};
use crate::environment::docker::container::{FOREVER, PIDS};
use crate::environment::{Mount, Share};
use crate::task::Task;

/// Returns the file before the task's own: the default image of the main service, and the command that keeps it
/// running.
pub(super) fn base(task: &Task) -> Value {
    let image = match &task.config.environment.docker_image {
        Some(image) => Some(("image", json!(image))),
        None if task.dockerfile().is_file() => Some(("build", json!({"context": task.environment_dir()}))),
        None => None,
    };
    let settings = [("command", json!(FOREVER))].into_iter().chain(image);
    let main: Map<_, _> = settings.map(|(name, value)| (name.to_owned(), value)).collect();
    json!({"services": {MAIN: main}})
}

/// Returns a file that names the built images, so that later jobs find them, and labels them.
pub(super) fn images(images: &BTreeMap<String, String>, labels: &HashMap<String, String>) -> Value {
    let service = |image: &String| json!({"image": image, "build": {"labels": labels}});
    let services: Map<_, _> = images.iter().map(|(name, image)| (name.clone(), service(image))).collect();
    json!({"services": services})
}

/// The settings that bind a project to one trial.
pub(super) struct Overlay<'a> {
    pub(super) task: &'a Task,
    pub(super) services: &'a Services,
    /// The trial's labels, for every object.
    pub(super) labels: HashMap<String, String>,
    /// The network that was created for the trial, in place of the default one.
    pub(super) network: Option<&'a str>,
    /// The name servers of the main service, if it must not look up names.
    pub(super) name_servers: Option<Vec<String>>,
    /// Directories of this host that the main service can read.
    pub(super) shares: &'a [Share],
    /// Mounts of the user in the main service.
    pub(super) mounts: &'a [Mount],
}

impl Overlay<'_> {
    pub(super) fn json(&self) -> Value {
        let labelled = |name: &String| (name.clone(), json!({"labels": self.labels}));
        let mut services: Map<_, _> = self.services.services.keys().map(labelled).collect();
        if let Some(main) = services.get_mut(MAIN).and_then(Value::as_object_mut) {
            main.extend(self.main());
        }
        // A trial with a restricted network must not reach the internet through a network of the task's file either.
        let restricted = !self.task.network.is_always_public();
        let networks: Map<_, _> = self
            .services
            .networks
            .iter()
            // Compose rejects settings for external networks, which exist already.
            .filter(|(_, config)| !config.as_ref().is_some_and(|config| config.external))
            .map(|(name, _)| match self.network {
                Some(network) if name == "default" => {
                    (name.clone(), json!({"name": network, "external": true}))
                }
                _ if restricted => (name.clone(), json!({"labels": self.labels, "internal": true})),
                _ => labelled(name),
            })
            .collect();
        let volumes: Map<_, _> = self
            .services
            .volumes
            .iter()
            .filter(|(_, config)| !config.as_ref().is_some_and(|config| config.external))
            .map(|(name, _)| labelled(name))
            .collect();
        json!({"services": services, "networks": networks, "volumes": volumes})
    }

    fn main(&self) -> Map<String, Value> {
        let config = &self.task.config.environment;
        let own = self.services.services.get(MAIN);
        // Compose rejects a second limit beside one in the task's file.
        let limited = own.is_some_and(|main| main.pids_limit.is_some() || main.deploy.is_some());
        let shares = self.shares.iter().map(|Share { host, inside }| {
            json!({"type": "bind", "source": host, "target": inside, "read_only": true})
        });
        let settings = [
            ("volumes", Some(shares.chain(self.mounts.iter().map(|mount| json!(mount))).collect())),
            ("init", Some(json!(true))),
            ("cap_drop", Some(json!(["NET_RAW"]))),
            ("environment", Some(json!(config.env))),
            ("cpus", config.cpus.map(|cpus| json!(cpus))),
            ("mem_limit", config.memory_mb.map(|memory| json!(format!("{memory}m")))),
            ("pids_limit", (!limited).then(|| json!(PIDS))),
            ("dns", self.name_servers.as_ref().map(|servers| json!(servers))),
        ];
        settings.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// Writes a compose file as JSON, which is valid YAML.
pub(super) fn write(dir: &Path, name: &str, file: &Value) -> std::io::Result<()> {
    std::fs::write(dir.join(name), file.to_string())
}

//! The parts of a task's services that rolltap needs, from the output of `docker compose config`: merged files with all
//! variables replaced.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The service in which agents and tests work.
pub(super) const MAIN: &str = "main";

/// The services, networks and volumes of a configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Services {
    pub(super) services: BTreeMap<String, Service>,
    pub(super) networks: BTreeMap<String, Option<NetworkConfig>>,
    pub(super) volumes: BTreeMap<String, Option<VolumeConfig>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Service {
    pub(super) build: Option<Build>,
    pub(super) network_mode: Option<String>,
    pub(super) pids_limit: Option<IgnoredAny>,
    pub(super) deploy: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Build {
    /// The build context: an absolute path, or a URL.
    pub(super) context: PathBuf,
    /// The path of the Dockerfile, relative to the context.
    pub(super) dockerfile: Option<PathBuf>,
    pub(super) dockerfile_inline: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NetworkConfig {
    pub(super) external: bool,
    pub(super) driver: Option<String>,
    pub(super) ipam: Option<BTreeMap<String, IgnoredAny>>,
    pub(super) internal: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct VolumeConfig {
    pub(super) external: bool,
}

impl Services {
    /// # Errors
    /// The JSON is invalid, or there is no service `main`.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let services: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        if services.services.contains_key(MAIN) {
            Ok(services)
        } else {
            let names: Vec<_> = services.services.keys().map(String::as_str).collect();
            Err(format!("there is no service \"main\", only {}", names.join(", ")))
        }
    }

    /// Returns the services that are built, by name.
    pub(super) fn built(&self) -> impl Iterator<Item = (&str, &Build)> {
        self.services.iter().filter_map(|(name, service)| Some((name.as_str(), service.build.as_ref()?)))
    }

    /// Returns a feature of the services that would bypass a restricted network policy, if there is one.
    pub(super) fn escapes(&self) -> Option<String> {
        let by_mode = self.services.iter().find_map(|(name, service)| {
            let mode = service.network_mode.as_deref()?;
            // These modes use networks that rolltap does not control.
            let escapes = mode == "host" || mode.starts_with("container:") || mode == "bridge";
            escapes.then(|| format!("service {name} has network_mode {mode:?}"))
        });
        let is_external =
            |config: &Option<NetworkConfig>| config.as_ref().is_some_and(|config| config.external);
        let by_network = || {
            let external = self.networks.iter().find(|(_, config)| is_external(config));
            external.map(|(name, _)| format!("network {name} is external"))
        };
        by_mode.or_else(by_network)
    }

    /// Whether the services use the default network and the task's file does not configure it.
    pub(super) fn has_plain_default_network(&self) -> bool {
        self.networks.get("default").is_some_and(|config| {
            config.as_ref().is_none_or(|config| {
                !config.external
                    && !config.internal
                    && config.driver.is_none()
                    && config.ipam.as_ref().is_none_or(BTreeMap::is_empty)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Services, String> {
        Services::parse(json.as_bytes())
    }

    #[test]
    fn what_compose_says_is_read() {
        let services = parse(
            r#"{"name": "x", "networks": {"default": {"name": "x_default", "ipam": {}}}, "volumes": {"data": {"name": "x_data"}},
                "services": {"db": {"image": "postgres", "networks": {"default": null}},
                             "main": {"build": {"context": "/task/environment", "dockerfile": "Dockerfile"}, "command": null}}}"#,
        );
        let services = services.unwrap();
        let built: Vec<_> = services.built().map(|(name, build)| (name, build.context.as_path())).collect();
        assert_eq!(built, [("main", std::path::Path::new("/task/environment"))]);
        assert!(services.has_plain_default_network() && services.escapes().is_none());
        assert!(services.volumes.contains_key("data"));
    }

    #[test]
    fn what_cannot_be_is_told() {
        assert_eq!(
            parse(r#"{"services": {"a": {}, "b": {}}}"#).unwrap_err(),
            "there is no service \"main\", only a, b"
        );
        let host = parse(r#"{"services": {"main": {}, "b": {"network_mode": "host"}}}"#).unwrap();
        assert_eq!(host.escapes().unwrap(), "service b has network_mode \"host\"");
        let external = parse(r#"{"services": {"main": {}}, "networks": {"n": {"external": true}}}"#).unwrap();
        assert_eq!(external.escapes().unwrap(), "network n is external");
        let own =
            parse(r#"{"services": {"main": {}}, "networks": {"default": {"driver": "overlay"}}}"#).unwrap();
        assert!(!own.has_plain_default_network());
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[\\[\\]{}\":,a-z0-9 ]{0,80}") {
            let _ = Services::parse(text.as_bytes());
        }
    }

    #[test]
    fn fuzz_compose_services() {
        rolltap_testing::fuzz!("compose_services", |json| drop(Services::parse(json)));
    }
}

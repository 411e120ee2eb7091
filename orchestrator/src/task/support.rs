//! What of Harbor's format rolltap cannot honour yet. Told before the first trial, never found out by a wrong reward.

use std::path::Path;

use super::config::{
    AgentConfig, Artifact, Collect, EnvironmentConfig, MAIN_SERVICE, NetworkMode, TaskConfig,
};
use super::config::{StepConfig, VerifierConfig};

/// One entry per field or file that would have to be ignored, with its value.
pub(super) fn unsupported(config: &TaskConfig, dir: &Path) -> Vec<String> {
    let mut found = Found::default();
    found.compose(dir, "environment");
    found.compose(dir, "tests");
    found.environment(&config.environment, "environment");
    found.agent(&config.agent, "agent");
    found.verifier(&config.verifier, "verifier");
    found.artifacts(&config.artifacts, "artifacts");
    for StepConfig { name, agent, verifier, artifacts, .. } in &config.steps {
        found.compose(dir, &format!("steps/{name}/tests"));
        found.agent(agent, &format!("steps.{name}.agent"));
        found.verifier(verifier, &format!("steps.{name}.verifier"));
        found.artifacts(artifacts, &format!("steps.{name}.artifacts"));
    }
    found.0
}

#[derive(Default)]
struct Found(Vec<String>);

impl Found {
    fn refuse(&mut self, present: bool, what: String) {
        if present {
            self.0.push(what);
        }
    }

    fn compose(&mut self, dir: &Path, context: &str) {
        for name in ["docker-compose.yaml", "docker-compose.yml"] {
            let file = format!("{context}/{name}");
            self.refuse(dir.join(&file).exists(), format!("{file} (several containers)"));
        }
    }

    fn environment(&mut self, environment: &EnvironmentConfig, section: &str) {
        let EnvironmentConfig { os, gpus, tpu, network_mode, allow_internet, allowed_hosts, .. } =
            environment;
        self.refuse(!os.eq_ignore_ascii_case("linux"), format!("{section}.os = {os:?}"));
        self.refuse(gpus.is_some_and(|gpus| gpus > 0), format!("{section}.gpus"));
        self.refuse(tpu.is_some(), format!("{section}.tpu"));
        let old = network_mode.is_none() && *allow_internet == Some(false);
        self.refuse(old, format!("{section}.allow_internet = false (the network can only be public)"));
        self.network(*network_mode, allowed_hosts.as_deref(), section);
    }

    fn agent(&mut self, agent: &AgentConfig, section: &str) {
        self.network(agent.network_mode, agent.allowed_hosts.as_deref(), section);
    }

    fn verifier(&mut self, verifier: &VerifierConfig, section: &str) {
        self.network(verifier.network_mode, verifier.allowed_hosts.as_deref(), section);
        for Collect { service, .. } in &verifier.collect {
            let other = service != MAIN_SERVICE;
            self.refuse(other, format!("{section}.collect of service {service:?} (several containers)"));
        }
        if let Some(own) = &verifier.environment {
            self.environment(own, &format!("{section}.environment"));
        }
    }

    fn artifacts(&mut self, artifacts: &[Artifact], key: &str) {
        for artifact in artifacts {
            let service = artifact.service();
            let other = service != MAIN_SERVICE;
            self.refuse(other, format!("{key} of service {service:?} (several containers)"));
        }
    }

    fn network(&mut self, mode: Option<NetworkMode>, hosts: Option<&[String]>, section: &str) {
        let mode = mode.unwrap_or(NetworkMode::Public);
        self.refuse(mode != NetworkMode::Public, format!("{section}.network_mode other than \"public\""));
        self.refuse(hosts.is_some() && mode == NetworkMode::Public, format!("{section}.allowed_hosts"));
    }
}

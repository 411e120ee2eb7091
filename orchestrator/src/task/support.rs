//! What of Harbor's format rolltap cannot honour yet. Told before the first trial, never found out by a wrong reward.

use std::path::Path;

use super::config::{Artifact, EnvironmentConfig, MAIN_SERVICE, StepConfig, TaskConfig, VerifierConfig};

/// One entry per field or file that would have to be ignored, with its value.
pub(super) fn unsupported(config: &TaskConfig, dir: &Path) -> Vec<String> {
    let mut found = Found::default();
    found.compose(dir, "environment");
    found.compose(dir, "tests");
    found.environment(&config.environment, "environment");
    found.verifier(&config.verifier, "verifier");
    found.artifacts(&config.artifacts, "artifacts");
    for StepConfig { name, verifier, artifacts, .. } in &config.steps {
        found.compose(dir, &format!("steps/{name}/tests"));
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
        let file = format!("{context}/docker-compose.yml");
        self.refuse(
            dir.join(&file).exists(),
            format!("{file} (Harbor reads docker-compose.yaml, with these letters)"),
        );
    }

    fn environment(&mut self, environment: &EnvironmentConfig, section: &str) {
        let EnvironmentConfig { os, gpus, tpu, .. } = environment;
        self.refuse(!os.eq_ignore_ascii_case("linux"), format!("{section}.os = {os:?}"));
        self.refuse(gpus.is_some_and(|gpus| gpus > 0), format!("{section}.gpus"));
        self.refuse(tpu.is_some(), format!("{section}.tpu"));
    }

    fn verifier(&mut self, verifier: &VerifierConfig, section: &str) {
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
}

//! Finds the parts of Harbor's format that rolltap does not support yet, and files that Harbor ignores. They are
//! reported before the first trial, so that they never cause a wrong reward.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Task;
use super::config::{Artifact, EnvironmentConfig, MAIN_SERVICE, StepConfig, TaskConfig, VerifierConfig};

/// A file name that Docker's compose plugin would look for, and that neither Harbor nor rolltap reads.
const STRAY: &str = "docker-compose.yml";

/// Returns files that look like the definition of an environment and are not, relative to the task's directory. They
/// are ordinary files of a build context or of the tests.
pub(super) fn stray_compose_files(task: &Task) -> Vec<PathBuf> {
    let of_tests = task.steps.iter().map(|step| &step.task).chain([task]);
    let of_tests = of_tests.filter_map(|task| task.separate_verifier.as_ref());
    let contexts =
        of_tests.map(|verifier| verifier.environment.environment_dir()).chain([task.environment_dir()]);
    // Several steps may have the same context.
    let found: BTreeSet<_> = contexts.map(|dir| dir.join(STRAY)).filter(|file| file.is_file()).collect();
    found.into_iter().map(|file| file.strip_prefix(&task.dir).map_or(file.clone(), Path::to_owned)).collect()
}

/// Returns one entry per unsupported field, with its value.
pub(super) fn unsupported(config: &TaskConfig) -> Vec<String> {
    let mut found = UnsupportedFeatures::default();
    found.environment(&config.environment, "environment");
    found.verifier(&config.verifier, "verifier");
    found.artifacts(&config.artifacts, "artifacts");
    for StepConfig { name, verifier, artifacts, .. } in &config.steps {
        found.verifier(verifier, &format!("steps.{name}.verifier"));
        found.artifacts(artifacts, &format!("steps.{name}.artifacts"));
    }
    found.0
}

#[derive(Default)]
struct UnsupportedFeatures(Vec<String>);

impl UnsupportedFeatures {
    fn refuse(&mut self, present: bool, what: String) {
        if present {
            self.0.push(what);
        }
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

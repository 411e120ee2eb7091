//! Parses `task.toml`: finds every wrong or impossible value, and the content that Harbor ignores.

use std::path::Path;

use super::check::check_values;
use super::config::{EnvironmentConfig, TaskConfig, VerifierConfig};
use super::document::{Document, Fault, Read};
use super::{TaskError, TaskWarning};

/// The result of parsing.
pub(super) struct Parsed {
    /// The configuration, or everything that is wrong with it.
    pub(super) config: Result<TaskConfig, Vec<TaskError>>,
    /// Content that has no effect.
    pub(super) warnings: Vec<TaskWarning>,
}

impl TaskConfig {
    /// Parses `text`, the content of `path`.
    pub(super) fn parse(text: &str, path: &Path) -> Parsed {
        let errors = |faults: Vec<Fault>| {
            let error = |Fault { line, problem, excerpt }| TaskError::Toml {
                path: path.to_owned(),
                line,
                problem,
                excerpt: Some(excerpt),
            };
            faults.into_iter().map(error).collect()
        };
        let document = match Document::parse(text) {
            Ok(document) => document,
            Err(faults) => return Parsed { config: Err(errors(faults)), warnings: Vec::new() },
        };
        let Read { value, unknown } = document.read::<Self>();
        let keys: Vec<_> = unknown.iter().map(|key| written(key)).collect();
        let mut warnings = Vec::new();
        if !keys.is_empty() {
            warnings.push(TaskWarning::UnknownKeys { path: path.to_owned(), keys });
        }
        let config = value.map_err(errors).and_then(|config| config.migrated(path, &mut warnings));
        Parsed { config, warnings }
    }

    /// Moves old spellings to their new keys first, so that the checks see all values.
    fn migrated(mut self, path: &Path, warnings: &mut Vec<TaskWarning>) -> Result<Self, Vec<TaskError>> {
        let mut errors = Vec::new();
        errors.extend(self.migrate_version(path, warnings).err());
        errors.extend(self.environment.migrate("environment", path));
        errors.extend(self.verifier.migrate("verifier", path));
        for step in &mut self.steps {
            errors.extend(step.verifier.migrate(&format!("steps.{}.verifier", step.name), path));
        }
        errors.extend(check_values(&self, path));
        if errors.is_empty() { Ok(self) } else { Err(errors) }
    }

    /// Moves the value of `version`, the old name of `schema_version`, by Harbor's rule. If both are set, the old one
    /// is dropped without a check.
    fn migrate_version(&mut self, path: &Path, warnings: &mut Vec<TaskWarning>) -> Result<(), TaskError> {
        match (self.version.take(), &self.schema_version) {
            (None, _) => {}
            (Some(toml::Value::String(old)), None) => self.schema_version = Some(old),
            (Some(old), None) => {
                return Err(TaskError::Value {
                    path: path.to_owned(),
                    key: "version".to_owned(),
                    value: old.to_string(),
                    expected: "a text like \"1.4\", better named schema_version",
                });
            }
            (Some(old), Some(new)) => {
                let (path, old) = (path.to_owned(), old.to_string());
                warnings.push(TaskWarning::OldVersion { path, old, new: new.clone() });
            }
        }
        Ok(())
    }
}

/// Converts a key to its spelling in the file. `serde_ignored` adds a component `?` for each optional table.
fn written(path: &str) -> String {
    path.split('.').filter(|step| *step != "?").collect::<Vec<_>>().join(".")
}

impl VerifierConfig {
    fn migrate(&mut self, section: &str, path: &Path) -> Vec<TaskError> {
        let own = self.environment.as_mut();
        own.map_or_else(Vec::new, |own| own.migrate(&format!("{section}.environment"), path))
    }
}

impl EnvironmentConfig {
    fn migrate(&mut self, section: &str, path: &Path) -> Vec<TaskError> {
        let Self { memory, memory_mb, storage, storage_mb, .. } = self;
        let mut errors = Vec::new();
        for (key, old, new) in [("memory", memory, memory_mb), ("storage", storage, storage_mb)] {
            let Some(old) = old.take() else { continue };
            let wrong = |expected| TaskError::Value {
                path: path.to_owned(),
                key: format!("{section}.{key}"),
                value: format!("{old:?}"),
                expected,
            };
            match mebibytes(&old) {
                None => errors.push(wrong("a size like \"2G\", \"512M\" or \"1024K\"")),
                // Both spellings may be set if they agree.
                Some(size) if new.is_some_and(|new| new != size) => {
                    errors.push(wrong("the same size as the key with _mb, or no such key"));
                }
                Some(size) => *new = Some(size),
            }
        }
        errors
    }
}

/// Converts `"2G"`, `"512M"` or `"1024K"` to MiB, rounded down as in Harbor.
fn mebibytes(size: &str) -> Option<u64> {
    let size = size.trim().to_ascii_uppercase();
    let (number, unit) = size.split_at_checked(size.len().checked_sub(1)?)?;
    let factor = match unit {
        "G" => 1024.0,
        "M" => 1.0,
        "K" => 1.0 / 1024.0,
        _ => return None,
    };
    let mebibytes = number.trim().parse::<f64>().ok()? * factor;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounding down a number in range"
    )]
    (0.0..1e15).contains(&mebibytes).then_some(mebibytes as u64)
}

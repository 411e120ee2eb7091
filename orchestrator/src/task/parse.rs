//! Parses `task.toml`. Notes keys that Harbor does not know, and rejects impossible values.

use std::path::Path;

use super::TaskError;
use super::check::check_values;
use super::config::{EnvironmentConfig, TaskConfig, VerifierConfig};

impl TaskConfig {
    /// Parses `text`, the content of `path`.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, TaskError> {
        let wrong = |error: toml::de::Error| TaskError::Toml {
            path: path.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        };
        let mut unknown = Vec::new();
        let deserializer = toml::Deserializer::parse(text).map_err(wrong)?;
        let mut config: Self =
            serde_ignored::deserialize(deserializer, |key| unknown.push(written(&key.to_string())))
                .map_err(wrong)?;
        config.ignored_keys = unknown;
        // Old spellings are moved to their new keys first, so that the checks see all values.
        config.migrate_version(path)?;
        config.environment.migrate("environment", path)?;
        config.verifier.migrate("verifier", path)?;
        for step in &mut config.steps {
            step.verifier.migrate(&format!("steps.{}.verifier", step.name), path)?;
        }
        check_values(&config, path)?;
        Ok(config)
    }

    /// Moves the value of `version`, the old name of `schema_version`, by Harbor's rule. If both are set, the old one
    /// is dropped without a check.
    fn migrate_version(&mut self, path: &Path) -> Result<(), TaskError> {
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
                let file = path.display();
                tracing::warn!("{file}: version = {old} is ignored, since there is schema_version = {new:?}");
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
    fn migrate(&mut self, section: &str, path: &Path) -> Result<(), TaskError> {
        let own = self.environment.as_mut();
        own.map_or(Ok(()), |own| own.migrate(&format!("{section}.environment"), path))
    }
}

impl EnvironmentConfig {
    fn migrate(&mut self, section: &str, path: &Path) -> Result<(), TaskError> {
        let Self { memory, memory_mb, storage, storage_mb, .. } = self;
        for (key, old, new) in [("memory", memory, memory_mb), ("storage", storage, storage_mb)] {
            let Some(old) = old.take() else { continue };
            let wrong = |expected| TaskError::Value {
                path: path.to_owned(),
                key: format!("{section}.{key}"),
                value: format!("{old:?}"),
                expected,
            };
            let size = mebibytes(&old).ok_or_else(|| wrong("a size like \"2G\", \"512M\" or \"1024K\""))?;
            // Both spellings may be set if they agree.
            if new.is_some_and(|new| new != size) {
                return Err(wrong("the same size as the key with _mb, or no such key"));
            }
            *new = Some(size);
        }
        Ok(())
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

//! Reading `task.toml`: keys that Harbor does not know are reported, not refused; values that cannot be are refused.

use std::path::Path;

use super::TaskError;
use super::config::{EnvironmentConfig, TaskConfig};

impl TaskConfig {
    /// Parses `text`, which stands in `path`. Warns of keys that are not Harbor's.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, TaskError> {
        let wrong = |error: toml::de::Error| TaskError::Toml {
            path: path.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        };
        let mut unknown = Vec::new();
        let deserializer = toml::Deserializer::parse(text).map_err(wrong)?;
        let mut config: Self =
            serde_ignored::deserialize(deserializer, |key| unknown.push(key.to_string())).map_err(wrong)?;
        if !unknown.is_empty() {
            tracing::warn!(file = %path.display(), keys = unknown.join(", "), "ignoring keys that Harbor does not know");
        }
        config.environment.migrate(path)?;
        config.check_values(path)?;
        Ok(config)
    }

    fn check_values(&self, path: &Path) -> Result<(), TaskError> {
        const SECONDS: &str = "a number of seconds above 0 and at most 1000000000";
        let in_range = |value: f64| value > 0.0 && value <= 1e9;
        let environment = &self.environment;
        let numbers = [
            ("agent.timeout_sec", self.agent.timeout_sec, SECONDS),
            ("verifier.timeout_sec", Some(self.verifier.timeout_sec), SECONDS),
            ("environment.build_timeout_sec", Some(environment.build_timeout_sec), SECONDS),
            ("environment.cpus", environment.cpus, "a number of CPUs above 0"),
        ];
        for (key, value, expected) in numbers {
            if let Some(value) = value.filter(|value| !in_range(*value)) {
                return Err(TaskError::Value {
                    path: path.to_owned(),
                    key,
                    value: value.to_string(),
                    expected,
                });
            }
        }
        let text = |key, value: &Option<String>, valid: fn(&str) -> bool, expected| match value {
            Some(value) if !valid(value) => {
                Err(TaskError::Value { path: path.to_owned(), key, value: format!("{value:?}"), expected })
            }
            _ => Ok(()),
        };
        text("environment.workdir", &environment.workdir, |dir| dir.starts_with('/'), "an absolute path")?;
        text(
            "environment.docker_image",
            &environment.docker_image,
            |name| !name.trim().is_empty(),
            "an image name",
        )?;
        let name = self.task.as_ref().map(|task| task.name.clone());
        text("task.name", &name, is_package_name, "a name like \"org/name\" of letters, digits and . _ -")
    }
}

impl EnvironmentConfig {
    fn migrate(&mut self, path: &Path) -> Result<(), TaskError> {
        let Self { memory, memory_mb, storage, storage_mb, .. } = self;
        for (key, old, new) in
            [("environment.memory", memory, memory_mb), ("environment.storage", storage, storage_mb)]
        {
            let Some(old) = old.take() else { continue };
            let wrong = |expected| TaskError::Value {
                path: path.to_owned(),
                key,
                value: format!("{old:?}"),
                expected,
            };
            let size = mebibytes(&old).ok_or_else(|| wrong("a size like \"2G\", \"512M\" or \"1024K\""))?;
            if new.is_some_and(|new| new != size) {
                return Err(wrong("the same size as the key with _mb says, or no such key"));
            }
            *new = Some(size);
        }
        Ok(())
    }
}

/// Harbor's rule for names of packages.
fn is_package_name(name: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    name.split_once('/').is_some_and(|(org, short)| part(org) && part(short)) && !name.contains("..")
}

/// `"2G"`, `"512M"`, `"1024K"` in MiB, rounded down as Harbor does.
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

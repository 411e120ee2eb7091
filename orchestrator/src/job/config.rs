//! A job as a file: Harbor's `JobConfig` or `TrialConfig`, as YAML or JSON, with an additional section, `rolltap`.
//!
//! A key that Harbor honours and rolltap cannot is an error before anything starts. Harbor ignores a key that it does
//! not know. rolltap does the same and warns, except in its own section, where such a key is an error.

mod dataset;
mod harbor;
mod known_keys;
mod mcp_file;
mod migrate;
mod own;
mod parts;
mod refuse;
mod settings;
#[cfg(test)]
mod tests;
mod write;

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use crate::trial::RetryConfig;
pub use dataset::DatasetRef;
pub(crate) use dataset::{DatasetPlace, RegistryEntry};
pub use harbor::{JobConfig, Metric, MetricConfig, TaskRef};
pub use mcp_file::mcp_servers;
pub use own::OwnConfig;
pub use parts::{AgentEntry, EnvironmentSection, VerifierSection};
pub use settings::{AgentDefaults, SettingsError};

use rolltap_proxy::in_words;

use crate::common::suggest::did_you_mean;

/// The key of rolltap's own section.
const OWN: &str = "rolltap";

/// The content of a job's file.
#[derive(Clone, Debug, Default)]
pub struct JobFile {
    /// The values of Harbor's keys.
    pub job: JobConfig,
    /// The values of the `rolltap` section.
    pub own: OwnConfig,
}

/// Why a job's file is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The content is not valid YAML, or not valid JSON.
    #[error("cannot be parsed: {0}")]
    Syntax(String),
    /// The content is not a mapping of keys to values.
    #[error("expected keys with values, like `agents:` or `tasks:`")]
    NoMapping,
    /// A key has a value of the wrong type.
    #[error("{key}: {problem}")]
    Value {
        /// The path of the key, as in `agents[0].name`.
        key: String,
        /// The expected value.
        problem: String,
    },
    /// The `rolltap` section has an unknown key.
    #[error("unknown key rolltap.{key}{}; known keys: {known}", did_you_mean(*.nearest))]
    Unknown {
        /// The key as given.
        key: String,
        /// The known key with the most similar name, if one is similar enough.
        nearest: Option<&'static str>,
        /// All known keys, separated by commas.
        known: String,
    },
    /// Keys that Harbor honours and rolltap cannot, each with its value and the reason.
    #[error("rolltap cannot honour {}", .0.join("; "))]
    Refused(Vec<String>),
}

impl JobFile {
    /// Reads a job's file. A file whose name ends in `.json` is JSON. Any other file is YAML, which includes JSON.
    ///
    /// # Errors
    /// Returns the first error. Keys that rolltap cannot honour are reported together.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let value = if is_json {
            serde_json::from_str(&text).map_err(|error| ConfigError::Syntax(error.to_string()))?
        } else {
            yaml(&text)?
        };
        Self::of(value)
    }

    /// Makes a job from the content of a file.
    pub(crate) fn of(value: Value) -> Result<Self, ConfigError> {
        let Value::Object(mut fields) = value else { return Err(ConfigError::NoMapping) };
        let own = match fields.remove(OWN) {
            Some(section) => OwnConfig::of(section)?,
            None => OwnConfig::default(),
        };
        // A file of a single trial becomes a job's file first, so that the old keys of both are replaced.
        let fields = migrate::job(migrate::trial(fields)?)?;
        let job: JobConfig = typed(&fields)?;
        job.check()?;
        Ok(Self { job, own })
    }
}

/// Converts YAML to JSON. The parser's default budget limits the expansion of anchors.
fn yaml(text: &str) -> Result<Value, ConfigError> {
    serde_saphyr::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string()))
}

/// Deserializes Harbor's keys. A key that has no field is refused, ignored, or unknown to Harbor.
fn typed<T: DeserializeOwned>(fields: &Map<String, Value>) -> Result<T, ConfigError> {
    let mut untyped = Vec::new();
    let value = Value::Object(fields.clone());
    let mut note = |path: serde_ignored::Path<'_>| untyped.push(path.to_string());
    let read = serde_path_to_error::deserialize(serde_ignored::Deserializer::new(value, &mut note));
    let typed = read.map_err(|error| ConfigError::Value {
        key: error.path().to_string(),
        problem: in_words(&error.inner().to_string()),
    })?;
    // Only the keys that no field took are checked here.
    refuse::check(fields, &untyped)?;
    Ok(typed)
}

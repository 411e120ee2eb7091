//! A job as a file: Harbor's `JobConfig` or `TrialConfig`, as YAML or JSON, with a section of our own, `rolltap`.
//!
//! What Harbor knows and rolltap cannot honour is an error before anything starts. What Harbor does not know it passes
//! over, and so do we, with a warning; in our own section it is an error.

mod harbor;
mod migrate;
mod own;
mod parts;
mod refuse;
mod settings;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use crate::trial::RetryConfig;
pub use harbor::{DatasetRef, JobConfig, Metric, MetricConfig, TaskRef};
pub use own::OwnConfig;
pub use parts::{AgentEntry, EnvironmentSection, VerifierSection};
pub use settings::{AgentDefaults, SettingsError};

use crate::common::suggest::did_you_mean;

/// The key of our own section.
const OWN: &str = "rolltap";

/// A job's file.
#[derive(Clone, Debug, Default)]
pub struct JobFile {
    /// What Harbor's keys say.
    pub job: JobConfig,
    /// What ours say.
    pub own: OwnConfig,
}

/// What is wrong with a job's file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file system said no.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// No YAML, or no JSON.
    #[error("cannot be parsed: {0}")]
    Syntax(String),
    /// Something other than keys with values.
    #[error("expected keys with values, like `agents:` or `tasks:`")]
    NoMapping,
    /// A value of the wrong kind.
    #[error("{key}: {problem}")]
    Value {
        /// Where, as in `agents[0].name`.
        key: String,
        /// What was expected.
        problem: String,
    },
    /// A key of our own section that we do not know.
    #[error("unknown key rolltap.{key}{}; known keys: {known}", did_you_mean(*.nearest))]
    Unknown {
        /// As given.
        key: String,
        /// The nearest known one, if one is near.
        nearest: Option<&'static str>,
        /// All of them.
        known: String,
    },
    /// Keys that Harbor honours and rolltap cannot.
    #[error("rolltap cannot honour {}", .0.join("; "))]
    Refused(Vec<String>),
}

impl JobFile {
    /// Reads a job's file: JSON where its name ends in `.json`, YAML otherwise (of which JSON is a part).
    ///
    /// # Errors
    /// The first thing that is wrong with it; all that cannot be honoured at once.
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

    /// Makes a job of a file's content.
    pub(crate) fn of(value: Value) -> Result<Self, ConfigError> {
        let Value::Object(mut fields) = value else { return Err(ConfigError::NoMapping) };
        let own = match fields.remove(OWN) {
            Some(section) => OwnConfig::of(section)?,
            None => OwnConfig::default(),
        };
        let fields = migrate::job(migrate::trial(fields)?)?;
        let job: JobConfig = typed(&fields)?;
        job.check()?;
        Ok(Self { job, own })
    }
}

/// YAML as JSON says it. Anchors are followed as far as the parser's budget for small documents allows.
fn yaml(text: &str) -> Result<Value, ConfigError> {
    serde_saphyr::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string()))
}

/// Harbor's keys as types. Those that no type has are refused, passed over, or not Harbor's at all.
fn typed<T: DeserializeOwned>(fields: &Map<String, Value>) -> Result<T, ConfigError> {
    let mut untyped = Vec::new();
    let value = Value::Object(fields.clone());
    let mut note = |path: serde_ignored::Path<'_>| untyped.push(path.to_string());
    let read = serde_path_to_error::deserialize(serde_ignored::Deserializer::new(value, &mut note));
    let typed = read.map_err(|error| ConfigError::Value {
        key: error.path().to_string(),
        problem: error.inner().to_string(),
    })?;
    refuse::check(fields, &untyped)?;
    Ok(typed)
}

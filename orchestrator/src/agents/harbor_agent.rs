//! Agents of Harbor, by Harbor's names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

/// An agent of Harbor's catalog, or an agent with an import path. Harbor checks that it exists.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HarborAgent {
    /// The value of Harbor's `--agent`.
    #[serde(skip)]
    pub name: String,
    /// The values of Harbor's `--agent-kwarg`.
    #[serde(flatten)]
    pub kwargs: Map<String, Value>,
    /// The values of Harbor's `--agent-env`. They may be secrets, so they are in no record.
    #[serde(skip)]
    pub env: BTreeMap<String, String>,
}

impl HarborAgent {
    /// Returns whether the agent calls a model.
    pub fn calls_model(&self) -> bool {
        !matches!(self.name.as_str(), "oracle" | "nop")
    }
}

/// Returns the Python that has Harbor: the requested interpreter, or `python3` from `PATH`.
pub(crate) fn python(asked: Option<&Path>) -> PathBuf {
    asked.map_or_else(|| PathBuf::from("python3"), Path::to_owned)
}

//! An agent of Harbor's own, by its name there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

/// An agent that Harbor knows, or that its own import path names. Harbor says whether there is such a one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HarborAgent {
    /// As in Harbor's `--agent`.
    #[serde(skip)]
    pub name: String,
    /// As in Harbor's `--agent-kwarg`.
    #[serde(flatten)]
    pub kwargs: Map<String, Value>,
    /// As in Harbor's `--agent-env`; they may be secrets, so no record has them.
    #[serde(skip)]
    pub env: BTreeMap<String, String>,
}

impl HarborAgent {
    /// Whether it works with a model.
    pub fn calls_model(&self) -> bool {
        !matches!(self.name.as_str(), "oracle" | "nop")
    }
}

/// The Python that has Harbor: as asked for, or else the one on the path.
pub(crate) fn python(asked: Option<&Path>) -> PathBuf {
    asked.map_or_else(|| PathBuf::from("python3"), Path::to_owned)
}

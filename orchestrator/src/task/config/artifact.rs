//! `artifacts`: the files to collect from an environment, in addition to its logs.

use serde::{Deserialize, Serialize};

/// The default service of a task: commands run in it, and artifacts are collected from it.
pub const MAIN_SERVICE: &str = "main";

/// An entry of `artifacts`: a path in the environment, or a table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Entry")]
pub struct Artifact {
    /// The path of the file or directory in the environment, without `..`.
    pub source: String,
    /// The path below the trial's `artifacts/`: relative, without `..`. `None` for the path in the environment.
    pub destination: Option<String>,
    /// Name patterns of files to exclude from a directory, as for `tar --exclude`.
    pub exclude: Vec<String>,
    /// The service of a compose file that has the source. `None` for the main service.
    pub service: Option<String>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a path, or a table with source and, if need be, destination, exclude and service"
)]
enum Entry {
    Path(String),
    Table {
        source: String,
        #[serde(default)]
        destination: Option<String>,
        #[serde(default)]
        exclude: Vec<String>,
        #[serde(default)]
        service: Option<String>,
    },
}

impl Artifact {
    /// Makes an artifact of everything at one path.
    pub fn of(source: impl Into<String>) -> Self {
        Self { source: source.into(), destination: None, exclude: Vec::new(), service: None }
    }

    /// Returns the service that has the source.
    pub fn service(&self) -> &str {
        self.service.as_deref().unwrap_or(MAIN_SERVICE)
    }
}

impl TryFrom<Entry> for Artifact {
    type Error = String;

    fn try_from(entry: Entry) -> Result<Self, String> {
        let artifact = match entry {
            Entry::Path(source) => Self::of(source),
            Entry::Table { source, destination, exclude, service } => {
                // An empty destination counts as absent.
                let destination = destination.filter(|destination| !destination.is_empty());
                Self { source, destination, exclude, service: service.map(service_name).transpose()? }
            }
        };
        let Self { source, destination, .. } = &artifact;
        if source.split('/').any(|part| part == "..") {
            return Err(format!("artifact source {source:?} must not contain \"..\""));
        }
        if let Some(destination) = destination {
            check_destination(destination)
                .map_err(|problem| format!("artifact destination {destination:?} {problem}"))?;
        }
        // The trial's workdir, to which a relative path refers, is known only for the main service.
        if artifact.service() != MAIN_SERVICE && !source.starts_with('/') {
            return Err(format!(
                "artifact source {source:?} of service {:?} must be an absolute path",
                artifact.service()
            ));
        }
        Ok(artifact)
    }
}

fn check_destination(destination: &str) -> Result<(), &'static str> {
    let mut parts = destination.split('/').filter(|part| !part.is_empty() && *part != ".");
    if destination.contains('\\') {
        return Err("must have forward slashes");
    }
    if destination.starts_with('/') {
        return Err("must be a relative path");
    }
    if parts.clone().any(|part| part == "..") {
        return Err("must not contain \"..\"");
    }
    match (parts.next(), parts.next()) {
        (None, _) => Err("must name a file or directory"),
        (Some("manifest.json"), None) => Err("is the place of the list of what was collected"),
        _ => Ok(()),
    }
}

/// Checks a service's name by Harbor's rule, and trims it.
pub(super) fn service_name(name: String) -> Result<String, String> {
    let trimmed = name.trim();
    let is_name = trimmed.starts_with(|c: char| c.is_ascii_alphanumeric())
        && trimmed.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    if is_name { Ok(trimmed.to_owned()) } else { Err(format!("{name:?} cannot be the name of a service")) }
}

//! Harbor's registry files: a JSON list of datasets, each with its version and its tasks.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::common::suggest::{did_you_mean, nearest};

/// The name of a registry file in its directory.
const FILE: &str = "registry.json";

/// Why a dataset cannot be taken from a registry file.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The file cannot be read.
    #[error("cannot read the registry file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The content is not a list of datasets.
    #[error(
        "{}: not a registry file of Harbor, which is a JSON list of datasets with name, version and tasks: {problem}",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The first problem, with its key.
        problem: String,
    },
    /// No dataset has this name.
    #[error(
        "{}: has no dataset {name:?}{}; it has: {}",
        path.display(), did_you_mean(nearest(.name, .known.iter().map(String::as_str))), .known.join(", ")
    )]
    NoDataset {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// The datasets of the file.
        known: Vec<String>,
    },
    /// The version does not exist, or the file does not decide which version is the newest.
    #[error("{}: dataset {name:?} has {problem}; choose one of its versions: {}", path.display(), .known.join(", "))]
    Version {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// The problem with the version.
        problem: String,
        /// The versions of the dataset.
        known: Vec<String>,
    },
}

/// A dataset of a registry file.
#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) tasks: Vec<EntryTask>,
    #[serde(default)]
    metrics: Vec<serde::de::IgnoredAny>,
}

/// A task of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct EntryTask {
    /// `None` for a task of this host, or of the repository of the registry file.
    pub(super) git_url: Option<String>,
    pub(super) git_commit_id: Option<String>,
    pub(super) path: PathBuf,
}

/// Returns the file at a path that may also be its directory.
pub(super) fn file_at(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|extension| extension == "json") {
        path.to_owned()
    } else {
        path.join(FILE)
    }
}

/// Reads the datasets of a file.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>, RegistryError> {
    let text = std::fs::read(path).map_err(|source| RegistryError::Read { path: path.to_owned(), source })?;
    parse(&text).map_err(|problem| RegistryError::Format { path: path.to_owned(), problem })
}

fn parse(text: &[u8]) -> Result<Vec<Entry>, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let entries = serde_path_to_error::deserialize(&mut deserializer);
    let entries = entries.map_err(|error| {
        let place = error.path().to_string();
        if place == "." { error.inner().to_string() } else { format!("{place}: {}", error.inner()) }
    })?;
    deserializer.end().map_err(|error| error.to_string())?;
    Ok(entries)
}

/// Returns the dataset of this name and version. Without a version, that is `head`, or the newest version.
pub(super) fn choose(
    entries: Vec<Entry>,
    path: &Path,
    name: &str,
    version: Option<&str>,
) -> Result<Entry, RegistryError> {
    let path = path.to_owned();
    let (named, others): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(|entry| entry.name == name);
    if named.is_empty() {
        let mut known: Vec<_> = others.into_iter().map(|entry| entry.name).collect();
        known.sort();
        known.dedup();
        return Err(RegistryError::NoDataset { path, name: name.to_owned(), known });
    }
    let known: Vec<_> = named.iter().map(|entry| entry.version.clone()).collect();
    let wrong = |problem: String| RegistryError::Version {
        path: path.clone(),
        name: name.to_owned(),
        problem,
        known: known.clone(),
    };
    let version = match version {
        Some(version) => version.to_owned(),
        None => newest(&known).ok_or_else(|| wrong("versions without an order".to_owned()))?.to_owned(),
    };
    let mut named = named.into_iter().filter(|entry| entry.version == version);
    let entry = named.next().ok_or_else(|| wrong(format!("no version {version:?}")))?;
    if !entry.metrics.is_empty() {
        tracing::warn!(
            "{}: the metrics of dataset {name:?} are ignored; set `metrics` in a job file",
            path.display()
        );
    }
    Ok(entry)
}

/// Returns `head`, the only version, or the greatest number. Harbor orders other texts too, by the rules of Python's
/// packages; rolltap leaves that choice to the user.
fn newest(versions: &[String]) -> Option<&String> {
    if let [only] = versions {
        return Some(only);
    }
    if let Some(head) = versions.iter().find(|version| *version == "head") {
        return Some(head);
    }
    let numbers = |version: &String| -> Option<Vec<u64>> {
        let mut numbers: Vec<u64> =
            version.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        // 2.0 and 2 are the same version.
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        Some(numbers)
    };
    let numbered = versions.iter().map(|version| Some((numbers(version)?, version)));
    Some(numbered.collect::<Option<Vec<_>>>()?.into_iter().max()?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"[
        {"name": "bench", "version": "1.0", "description": "", "tasks": [{"name": "a", "path": "tasks/a"}]},
        {"name": "bench", "version": "1.10", "description": "",
         "tasks": [{"name": "b", "git_url": "https://h/r", "git_commit_id": "abc", "path": "tasks/b"}]},
        {"name": "odd", "version": "x", "description": "", "tasks": []},
        {"name": "odd", "version": "y", "description": "", "tasks": []}
    ]"#;

    fn chosen(name: &str, version: Option<&str>) -> Result<Vec<EntryTask>, String> {
        let entries = parse(FILE.as_bytes()).unwrap();
        let entry = choose(entries, Path::new("r.json"), name, version).map_err(|error| error.to_string())?;
        Ok(entry.tasks)
    }

    #[test]
    fn a_dataset_is_found_by_name_and_version_and_the_newest_is_the_default() {
        assert_eq!(chosen("bench", Some("1.0")).unwrap()[0].path, Path::new("tasks/a"));
        assert_eq!(chosen("bench", None).unwrap()[0].git_url.as_deref(), Some("https://h/r"));
        let versions = |list: &[&str]| list.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>();
        assert_eq!(newest(&versions(&["1.0", "head", "2.0"])).unwrap(), "head");
        assert_eq!(newest(&versions(&["2.0", "10", "9.9"])).unwrap(), "10");
    }

    #[test]
    fn an_unknown_name_or_version_is_answered_with_the_known_ones() {
        let unknown = chosen("bensh", None).unwrap_err();
        assert_eq!(unknown, "r.json: has no dataset \"bensh\" (did you mean \"bench\"?); it has: bench, odd");
        let version = chosen("bench", Some("2.0")).unwrap_err();
        assert!(version.ends_with("no version \"2.0\"; choose one of its versions: 1.0, 1.10"), "{version}");
        let unordered = chosen("odd", None).unwrap_err();
        assert!(unordered.contains("versions without an order"), "{unordered}");
    }

    #[test]
    fn a_file_of_another_format_is_refused_with_its_key() {
        let error = parse(br#"[{"name": "x", "version": "1", "tasks": [{"path": 7}]}]"#).unwrap_err();
        assert!(error.starts_with("[0].tasks[0].path: "), "{error}");
        assert!(parse(b"{}").is_err() && parse(b"[] x").is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_list_or_an_error(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }

        #[test]
        fn any_versions_have_a_newest_or_none(versions: Vec<String>) {
            if let Some(version) = newest(&versions) {
                proptest::prop_assert!(versions.contains(version));
            }
        }
    }
}

//! Harbor's `DatasetConfig`: where the tasks of a dataset are, and which of them run.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A dataset: a directory of tasks, a git repository, or an entry of a registry file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DatasetRef {
    /// The directory. With `repo`, it is relative to the root of the repository.
    pub path: Option<PathBuf>,
    /// The name of the dataset in a registry file.
    pub name: Option<String>,
    /// The version of the named dataset. `None` for the newest version.
    pub version: Option<String>,
    /// The registry file, or its directory. With `repo`, it is relative to the root of the repository.
    pub registry_path: Option<PathBuf>,
    /// The git repository: a URL, or a form that Harbor accepts, like `org/name@v1`.
    pub repo: Option<String>,
    /// Whether to fetch tasks even if they are in the cache.
    pub overwrite: bool,
    /// The directory of the cache.
    pub download_dir: Option<PathBuf>,
    /// Shell patterns. The name of a task's directory must match at least one.
    pub task_names: Option<Vec<String>>,
    /// Shell patterns. Tasks whose directory name matches any of these are excluded.
    pub exclude_task_names: Option<Vec<String>>,
    /// The maximum number of the remaining tasks, in order of their names.
    pub n_tasks: Option<usize>,
}

/// The place of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatasetPlace<'a> {
    /// A directory of this host.
    Directory(&'a Path),
    /// A directory of a git repository. `None` for the directory that the source of the repository names.
    Repository(&'a str, Option<&'a Path>),
    /// An entry of a registry file.
    Registry(RegistryEntry<'a>),
}

/// An entry of a registry file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegistryEntry<'a> {
    /// The repository of the file. `None` for a file of this host.
    pub(crate) repo: Option<&'a str>,
    /// The file, or its directory. `None` for `registry.json` in the root of the repository.
    pub(crate) file: Option<&'a Path>,
    pub(crate) name: &'a str,
    pub(crate) version: Option<&'a str>,
}

impl DatasetRef {
    /// Returns the place of the dataset by Harbor's rules.
    ///
    /// # Errors
    /// Returns what is missing, or which keys exclude each other.
    pub(crate) fn place(&self) -> Result<DatasetPlace<'_>, String> {
        let (path, name) = (self.path.as_deref(), self.name.as_deref());
        let (file, version) = (self.registry_path.as_deref(), self.version.as_deref());
        let repo = self.repo.as_deref();
        match (path, name) {
            (Some(_), Some(_)) => {
                Err("`path` and `name` exclude each other: a directory, or an entry of a registry".to_owned())
            }
            (_, None) if file.is_some() => Err("`registry_path` needs the `name` of a dataset".to_owned()),
            (_, None) if version.is_some() => Err("`version` needs the `name` of a dataset".to_owned()),
            (None, Some(name)) if name.contains('/') => Err(format!(
                "{name:?} is a package of Harbor Hub: download it with `harbor download {name}`, and give its `path`"
            )),
            (None, Some(name)) if repo.is_none() && file.is_none() => Err(format!(
                "the dataset {name:?} is looked up in no registry on the network: give a registry file \
                 (`registry_path`), a git repository (`repo`), or download it with `harbor download {name}` and give \
                 its `path`"
            )),
            (None, Some(name)) => Ok(DatasetPlace::Registry(RegistryEntry { repo, file, name, version })),
            (path, None) => match (repo, path) {
                (Some(repo), path) => Ok(DatasetPlace::Repository(repo, path)),
                (None, Some(path)) => Ok(DatasetPlace::Directory(path)),
                (None, None) => Err("expected `path`, a directory of tasks".to_owned()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(path: Option<&str>, repo: Option<&str>, name: Option<&str>, file: Option<&str>) -> DatasetRef {
        let text = |value: Option<&str>| value.map(str::to_owned);
        DatasetRef {
            path: path.map(PathBuf::from),
            repo: text(repo),
            name: text(name),
            registry_path: file.map(PathBuf::from),
            ..DatasetRef::default()
        }
    }

    #[test]
    fn the_keys_of_a_dataset_give_one_place() {
        let directory = dataset(Some("d"), None, None, None);
        assert_eq!(directory.place(), Ok(DatasetPlace::Directory(Path::new("d"))));
        let whole = dataset(None, Some("org/x"), None, None);
        assert_eq!(whole.place(), Ok(DatasetPlace::Repository("org/x", None)));
        let part = dataset(Some("d"), Some("org/x"), None, None);
        assert_eq!(part.place(), Ok(DatasetPlace::Repository("org/x", Some(Path::new("d")))));
        let entry = dataset(None, None, Some("bench"), Some("r.json"));
        let expected =
            RegistryEntry { repo: None, file: Some(Path::new("r.json")), name: "bench", version: None };
        assert_eq!(entry.place(), Ok(DatasetPlace::Registry(expected)));
    }

    #[test]
    fn keys_that_give_no_place_are_named_with_the_remedy() {
        for (dataset, expected) in [
            (dataset(None, None, None, None), "expected `path`"),
            (dataset(Some("d"), None, Some("bench"), None), "exclude each other"),
            (dataset(None, None, None, Some("r.json")), "needs the `name`"),
            (dataset(Some("d"), None, None, Some("r.json")), "needs the `name`"),
            (dataset(None, None, Some("bench"), None), "give a registry file"),
            (dataset(None, None, Some("org/bench"), None), "`harbor download org/bench`"),
        ] {
            let error = dataset.place().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}

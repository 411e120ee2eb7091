//! Loads the tasks of a dataset: those of a directory, of a git repository, or of an entry of a registry file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::git::{self, Wanted};
use super::repo::RepoSource;
use super::{Found, TasksError, fnmatch, is_task, registry, single};
use crate::common::suggest::nearest;
use crate::job::config::{DatasetPlace, DatasetRef, RegistryEntry, TaskRef};
use crate::task::{GitOrigin, Runner, TaskError};

/// Harbor's directory of the tasks in a repository whose source names no directory.
const TASKS: &str = "tasks";

/// A task that is not yet loaded.
enum Candidate {
    /// A directory of this host, and its repository.
    Here(PathBuf, Option<GitOrigin>),
    /// A task that may have to be fetched.
    There(TaskRef),
}

/// Loads the tasks of a dataset in order of their names, or in the order of a registry file. Tasks that the patterns
/// exclude are not loaded, so they may be invalid.
pub(super) async fn load(dataset: &DatasetRef, runner: Runner, found: &mut Found) -> Result<(), TasksError> {
    let (title, source, candidates) = match dataset.place().map_err(TasksError::Dataset)? {
        DatasetPlace::Directory(path) => {
            // The dataset has the name of its directory, which a path such as `.` lacks.
            let root = path.canonicalize().map_err(|_| TaskError::NotADirectory(path.to_owned()))?;
            let source = root.file_name().map(|name| name.to_string_lossy().into_owned());
            let dirs = directories(&root, path)?;
            let here = |dir| Candidate::Here(dir, None);
            (path.display().to_string(), source, dirs.into_iter().map(here).collect())
        }
        DatasetPlace::Repository(repo, path) => of_repository(dataset, repo, path).await?,
        DatasetPlace::Registry(entry) => of_registry(dataset, entry).await?,
    };
    let mut chosen = chosen(dataset, &title, candidates)?;
    fetch_together(&mut chosen).await?;
    for candidate in chosen {
        let source = source.clone();
        match candidate {
            Candidate::Here(dir, git) => found.add(&dir, runner, source, git),
            Candidate::There(task) => single(&TaskRef { source, ..task }, runner, found).await?,
        }
    }
    Ok(())
}

/// A name for messages, the name of the dataset, and its tasks.
type Listed = (String, Option<String>, Vec<Candidate>);

async fn of_repository(dataset: &DatasetRef, repo: &str, path: Option<&Path>) -> Result<Listed, TasksError> {
    let source: RepoSource = repo.parse()?;
    let directory = match (path, &source.directory) {
        (Some(_), Some(_)) => {
            let problem =
                format!("{repo}: names the directory of the tasks, and so does `path`: leave one out");
            return Err(TasksError::Dataset(problem));
        }
        (Some(directory), None) => directory,
        (None, directory) => directory.as_deref().unwrap_or(Path::new(TASKS)),
    };
    let (root, origin) = git::fetch(wanted(dataset, &source, directory)).await?;
    let here = |dir: PathBuf| {
        let path = origin.path.join(dir.file_name().unwrap_or_default());
        Candidate::Here(dir, Some(GitOrigin { path, ..origin.clone() }))
    };
    let candidates = directories(&root, directory)?.into_iter().map(here).collect();
    Ok((repo.to_owned(), Some(source.name().to_owned()), candidates))
}

async fn of_registry(dataset: &DatasetRef, entry: RegistryEntry<'_>) -> Result<Listed, TasksError> {
    let file = registry::file_at(entry.file.unwrap_or(Path::new("")));
    let (file, origin) = match entry.repo {
        None => (file, None),
        Some(repo) => {
            let source: RepoSource = repo.parse()?;
            // The tasks without a repository of their own are elsewhere in this one.
            let (root, origin) = git::fetch(wanted(dataset, &source, Path::new(""))).await?;
            let file = git::within(&file).ok_or_else(|| {
                TasksError::Dataset(format!("{}: does not stay in the repository", file.display()))
            })?;
            (root.join(file), Some(origin))
        }
    };
    let found = registry::choose(registry::read(&file)?, &file, entry.name, entry.version)?;
    let there = |task: registry::EntryTask| {
        let of_file = origin.as_ref().filter(|_| task.git_url.is_none());
        Candidate::There(TaskRef {
            git_url: task.git_url.or_else(|| of_file.map(|origin| origin.url.clone())),
            git_commit_id: task.git_commit_id.or_else(|| of_file.map(|origin| origin.commit.clone())),
            path: Some(task.path),
            overwrite: dataset.overwrite,
            download_dir: dataset.download_dir.clone(),
            source: None,
        })
    };
    Ok((entry.name.to_owned(), Some(found.name), found.tasks.into_iter().map(there).collect()))
}

fn wanted<'a>(dataset: &'a DatasetRef, source: &'a RepoSource, path: &'a Path) -> Wanted<'a> {
    Wanted {
        url: &source.url,
        commit: source.revision.as_deref(),
        path,
        cache: dataset.download_dir.as_deref(),
        anew: dataset.overwrite,
    }
}

/// Returns the tasks of a directory, sorted by name. `path` is the directory as the user writes it.
fn directories(root: &Path, path: &Path) -> Result<Vec<PathBuf>, TasksError> {
    let unreadable = |source| TaskError::Read { path: path.to_owned(), source };
    let mut dirs = Vec::new();
    for entry in root.read_dir().map_err(unreadable)? {
        let dir = entry.map_err(unreadable)?.path();
        if is_task(&dir) {
            dirs.push(dir);
        }
    }
    dirs.sort();
    if dirs.is_empty() { Err(TaskError::NothingFound(path.to_owned()).into()) } else { Ok(dirs) }
}

/// Fetches the tasks that have one version of one repository by one download. The cache has all of them afterwards.
async fn fetch_together(candidates: &mut [Candidate]) -> Result<(), TasksError> {
    let mut versions: BTreeMap<(String, Option<String>), Vec<&mut TaskRef>> = BTreeMap::new();
    for candidate in candidates {
        let Candidate::There(task) = candidate else { continue };
        if let Some(url) = task.git_url.clone() {
            versions.entry((url, task.git_commit_id.clone())).or_default().push(task);
        }
    }
    for ((url, commit), tasks) in versions {
        let [first, _, ..] = tasks.as_slice() else { continue };
        let paths: Vec<PathBuf> = tasks.iter().filter_map(|task| task.path.clone()).collect();
        // A path that leads out of the repository is refused with its own task.
        let Some(common) = common_directory(&paths) else { continue };
        let (cache, anew) = (first.download_dir.clone(), first.overwrite);
        let wanted =
            Wanted { url: &url, commit: commit.as_deref(), path: &common, cache: cache.as_deref(), anew };
        let (_, origin) = git::fetch(wanted).await?;
        for task in tasks {
            task.git_commit_id = Some(origin.commit.clone());
            task.overwrite = false;
        }
    }
    Ok(())
}

/// Returns the deepest directory that contains all paths. `None` if a path leaves the repository.
fn common_directory(paths: &[PathBuf]) -> Option<PathBuf> {
    let mut paths = paths.iter().map(|path| git::within(path));
    let mut common = paths.next()??.parent().map(Path::to_owned).unwrap_or_default();
    for path in paths {
        let path = path?;
        // The empty path has no parent, and contains all paths.
        while (!path.starts_with(&common) || path == common) && common.pop() {}
    }
    Some(common)
}

fn chosen(
    dataset: &DatasetRef,
    title: &str,
    candidates: Vec<Candidate>,
) -> Result<Vec<Candidate>, TasksError> {
    let names: Vec<_> = candidates.iter().map(name_of).collect();
    let mut left = candidates;
    let matches = |candidate: &Candidate, patterns: &[String]| {
        let name = name_of(candidate);
        patterns.iter().any(|pattern| fnmatch::matches(pattern, &name))
    };
    // Harbor takes an empty list as absent.
    if let Some(patterns) = dataset.task_names.as_ref().filter(|patterns| !patterns.is_empty()) {
        left.retain(|candidate| matches(candidate, patterns));
        if left.is_empty() {
            let suggestion = patterns
                .iter()
                .find_map(|pattern| nearest(pattern, names.iter().map(String::as_str)).map(str::to_owned));
            return Err(TasksError::NoMatch {
                dataset: title.to_owned(),
                patterns: patterns.clone(),
                suggestion,
                names: names.into_iter().take(5).collect(),
            });
        }
    }
    if let Some(patterns) = &dataset.exclude_task_names {
        left.retain(|candidate| !matches(candidate, patterns));
    }
    // The limit applies after the patterns, as in Harbor.
    left.truncate(dataset.n_tasks.unwrap_or(usize::MAX));
    Ok(left)
}

/// Returns the name that patterns match: that of the task's directory, as in Harbor.
fn name_of(candidate: &Candidate) -> String {
    let path = match candidate {
        Candidate::Here(dir, _) => Some(dir.as_path()),
        Candidate::There(task) => task.path.as_deref(),
    };
    path.and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(
        task_names: &[&str],
        exclude: &[&str],
        n_tasks: Option<usize>,
    ) -> Result<Vec<String>, TasksError> {
        let list = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let dataset = DatasetRef {
            task_names: list(task_names).filter(|list| !list.is_empty()),
            exclude_task_names: list(exclude),
            n_tasks,
            ..DatasetRef::default()
        };
        let dirs = ["d/add-1", "d/add-2", "d/sort"].map(|dir| Candidate::Here(PathBuf::from(dir), None));
        Ok(chosen(&dataset, "d", dirs.into())?.iter().map(name_of).collect())
    }

    #[test]
    fn patterns_choose_and_leave_out_and_a_number_cuts_off() {
        assert_eq!(dataset(&[], &[], None).unwrap().len(), 3);
        assert_eq!(dataset(&["add-*"], &[], None).unwrap(), ["add-1", "add-2"]);
        assert_eq!(dataset(&["add-*"], &["*-1"], None).unwrap(), ["add-2"]);
        assert_eq!(dataset(&[], &["add-1"], Some(1)).unwrap(), ["add-2"]);
        let error = dataset(&["sub-*"], &[], None).unwrap_err().to_string();
        assert_eq!(error, "dataset d: no task matches sub-*; there are: add-1, add-2, sort");
        let error = dataset(&["srot"], &[], None).unwrap_err().to_string();
        assert!(error.contains("no task matches srot (did you mean \"sort\"?)"), "{error}");
    }

    #[test]
    fn the_common_directory_contains_every_task_and_is_none_of_them() {
        let common = |paths: &[&str]| common_directory(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(common(&["tasks/a", "tasks/b"]), Some(PathBuf::from("tasks")));
        assert_eq!(common(&["tasks/a", "tasks/a/b"]), Some(PathBuf::from("tasks")));
        assert_eq!(common(&["x/tasks/a", "x/others/b"]), Some(PathBuf::from("x")));
        assert_eq!(common(&["a", "b"]), Some(PathBuf::new()));
        assert_eq!(common(&["a", "../b"]), None);
    }

    proptest::proptest! {
        #[test]
        fn any_paths_have_a_common_directory_within_the_repository(
            paths in proptest::collection::vec("[a./]{0,8}", 1..4)
        ) {
            let paths: Vec<_> = paths.iter().map(PathBuf::from).collect();
            if let Some(common) = common_directory(&paths) {
                proptest::prop_assert_eq!(git::within(&common), Some(common.clone()));
            }
        }
    }
}

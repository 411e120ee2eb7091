//! The tasks that the command line names, as the keys of a job file.

use std::path::{Path, PathBuf};

use super::{TasksError, at_path, registry, repo};
use crate::job::config::{DatasetRef, JobConfig, TaskRef};

/// The options of `rolltap run` that choose tasks. They have Harbor's names.
#[derive(Clone, Debug, Default)]
pub struct DatasetArguments {
    /// `--path`: directories of tasks. With `repo` and `task_git_url`, they are in the repository.
    pub paths: Vec<PathBuf>,
    /// `--dataset`: a directory, the URL of a git repository, a registry file, or a name in one.
    pub dataset: Option<String>,
    /// `--repo`: a git repository.
    pub repo: Option<String>,
    /// `--registry-path`: a registry file or its directory.
    pub registry_path: Option<PathBuf>,
    /// `--task-git-url`: the repository of the tasks of `paths`.
    pub task_git_url: Option<String>,
    /// `--task-git-commit`: their version.
    pub task_git_commit: Option<String>,
    /// `--task`: the name of one task of the datasets.
    pub task: Option<String>,
    /// `--include-task-name`: shell patterns.
    pub include: Vec<String>,
    /// `--exclude-task-name`: shell patterns.
    pub exclude: Vec<String>,
    /// `--n-tasks`: the maximum number of tasks of each dataset.
    pub n_tasks: Option<usize>,
}

/// Why the options do not choose tasks.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentError {
    /// The path of `--path` is not usable.
    #[error("no usable task at {}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The reason.
        #[source]
        source: Box<TasksError>,
    },
    /// The value of `--dataset` is no directory, no file and no URL.
    #[error(
        "--dataset {0}: there is no such directory or file, and no registry is given for a name. Give the directory of \
         the tasks, a git URL like https://host/org/name@REVISION, or the registry file that has the name: -d NAME \
         --registry-path FILE. `harbor download {0}` fetches a dataset of Harbor's registry, and -p takes its directory"
    )]
    NoSuchDataset(String),
    /// A registry file has several datasets, and none is chosen.
    #[error(
        "--dataset {}: the registry file has {}; choose one with -d NAME --registry-path {}",
        .file.display(), described(.names), .file.display()
    )]
    Several {
        /// The file.
        file: PathBuf,
        /// The datasets of the file, each with its version.
        names: Vec<String>,
    },
    /// The registry file cannot be used.
    #[error(transparent)]
    Registry(#[from] super::RegistryError),
    /// `--task` has the name of a package.
    #[error(
        "--task {0}: packages of Harbor Hub are not fetched: download it with `harbor download {0}`, and give its \
         directory with -p"
    )]
    Package(String),
    /// Options of datasets are given for a job of single tasks.
    #[error(
        "{option} chooses among the tasks of a dataset, and {} is a single task: leave the option out, or give the \
         directory above the task", .task.display()
    )]
    SingleTask {
        /// The option.
        option: &'static str,
        /// The task.
        task: PathBuf,
    },
    /// Options of datasets are given without a dataset.
    #[error("{0} chooses among the tasks of a dataset: give the dataset with -d or -p")]
    NoDataset(&'static str),
    /// Two options exclude each other, or one needs another.
    #[error("{0}")]
    Combination(&'static str),
}

fn described(names: &[String]) -> String {
    if names.is_empty() { "no dataset".to_owned() } else { format!("these datasets: {}", names.join(", ")) }
}

impl DatasetArguments {
    /// Sets the keys of the job. Options that name tasks replace all tasks and datasets of the job, and the others
    /// choose among its datasets.
    ///
    /// # Errors
    /// Fails for options that exclude each other, and for paths and names that do not exist.
    pub fn apply(self, job: &mut JobConfig) -> Result<(), ArgumentError> {
        self.replace(job)?;
        self.choose(job)
    }

    fn replace(&self, job: &mut JobConfig) -> Result<(), ArgumentError> {
        if self.task_git_commit.is_some() && self.task_git_url.is_none() {
            return Err(ArgumentError::Combination("--task-git-commit needs --task-git-url"));
        }
        if self.registry_path.is_some() && self.dataset.is_none() {
            return Err(ArgumentError::Combination("--registry-path needs the name of a dataset: -d NAME"));
        }
        if self.paths.is_empty() && self.dataset.is_none() && self.repo.is_none() {
            return match self.task_git_url {
                Some(_) => {
                    Err(ArgumentError::Combination("--task-git-url needs --path, the task's directory in it"))
                }
                None => Ok(()),
            };
        }
        job.tasks.clear();
        job.datasets.clear();
        if let Some(url) = &self.task_git_url {
            let git = |path: &PathBuf| TaskRef {
                path: Some(path.clone()),
                git_url: Some(url.clone()),
                git_commit_id: self.task_git_commit.clone(),
                ..TaskRef::default()
            };
            job.tasks = self.paths.iter().map(git).collect();
            return match (&self.dataset, &self.repo) {
                (None, None) => Ok(()),
                _ => Err(ArgumentError::Combination("--task-git-url excludes --dataset and --repo")),
            };
        }
        if let Some(repo) = &self.repo {
            job.datasets.push(self.in_repository(repo)?);
            return Ok(());
        }
        for path in &self.paths {
            at_path(job, path)
                .map_err(|error| ArgumentError::Path { path: path.clone(), source: Box::new(error) })?;
        }
        match &self.dataset {
            Some(dataset) => self.dataset(job, dataset),
            None => Ok(()),
        }
    }

    fn in_repository(&self, repo: &str) -> Result<DatasetRef, ArgumentError> {
        let path = match self.paths.as_slice() {
            [] => None,
            [path] => Some(path.clone()),
            _ => {
                return Err(ArgumentError::Combination(
                    "--repo takes one --path, the directory of the tasks in it",
                ));
            }
        };
        let (name, version) = self.dataset.as_deref().map(named).unzip();
        Ok(DatasetRef {
            repo: Some(repo.to_owned()),
            path,
            name: name.map(str::to_owned),
            version: version.flatten().map(str::to_owned),
            registry_path: self.registry_path.clone(),
            ..DatasetRef::default()
        })
    }

    fn dataset(&self, job: &mut JobConfig, given: &str) -> Result<(), ArgumentError> {
        let path = Path::new(given);
        let dataset = if let Some(file) = &self.registry_path {
            of_registry(file.clone(), named(given))
        } else if path.is_dir() {
            let wrong = |error| ArgumentError::Path { path: path.to_owned(), source: Box::new(error) };
            return at_path(job, path).map_err(wrong);
        } else if path.is_file() {
            only_dataset(path)?
        } else if repo::is_url(given) {
            DatasetRef { repo: Some(given.to_owned()), ..DatasetRef::default() }
        } else {
            return Err(ArgumentError::NoSuchDataset(given.to_owned()));
        };
        job.datasets.push(dataset);
        Ok(())
    }

    fn choose(self, job: &mut JobConfig) -> Result<(), ArgumentError> {
        let given = [
            ("--task", self.task.is_some()),
            ("--include-task-name", !self.include.is_empty()),
            ("--exclude-task-name", !self.exclude.is_empty()),
            ("--n-tasks", self.n_tasks.is_some()),
        ];
        let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
        if let Some(task) = job.tasks.first() {
            let task = task.path.clone().unwrap_or_default();
            return Err(ArgumentError::SingleTask { option, task });
        }
        if job.datasets.is_empty() {
            return Err(ArgumentError::NoDataset(option));
        }
        let mut include = self.include;
        if let Some(task) = self.task {
            if task.contains(['/', '@']) {
                return Err(ArgumentError::Package(task));
            }
            include.push(literal(&task));
        }
        for dataset in &mut job.datasets {
            if !include.is_empty() {
                dataset.task_names = Some(include.clone());
            }
            if !self.exclude.is_empty() {
                dataset.exclude_task_names = Some(self.exclude.clone());
            }
            dataset.n_tasks = self.n_tasks.or(dataset.n_tasks);
        }
        Ok(())
    }
}

/// Splits `NAME@VERSION`.
fn named(text: &str) -> (&str, Option<&str>) {
    text.split_once('@').map_or((text, None), |(name, version)| (name, Some(version)))
}

fn of_registry(file: PathBuf, (name, version): (&str, Option<&str>)) -> DatasetRef {
    DatasetRef {
        registry_path: Some(file),
        name: Some(name.to_owned()),
        version: version.map(str::to_owned),
        ..DatasetRef::default()
    }
}

/// Returns the dataset of a registry file that has no other.
fn only_dataset(file: &Path) -> Result<DatasetRef, ArgumentError> {
    let entries = registry::read(file)?;
    match entries.as_slice() {
        [only] => Ok(of_registry(file.to_owned(), (&only.name, Some(&only.version)))),
        entries => {
            let names = entries.iter().map(|entry| format!("{}@{}", entry.name, entry.version)).collect();
            Err(ArgumentError::Several { file: file.to_owned(), names })
        }
    }
}

/// Returns the pattern that matches this name only.
fn literal(name: &str) -> String {
    name.chars()
        .map(|letter| if "*?[".contains(letter) { format!("[{letter}]") } else { letter.into() })
        .collect()
}

#[cfg(test)]
mod tests;

//! The jobs that a viewer shows, and the paths that it reads them from.

mod captures;
mod files;
mod job;
mod problems;
mod recompute;
mod rows_file;
pub(crate) mod screens;
mod state;
mod trial;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use files::{TextFile, TrialFile, TrialFiles};
pub use job::{Job, JobContent};
pub(crate) use trial::SearchedTrial;
pub use trial::{CapturedCall, CauseCost, ExportFacts, TrialContent, TrialEntry};

use self::job::JobKind;
use self::recompute::Reports;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path does not exist.
    #[error("{} does not exist", .0.display())]
    NotFound(PathBuf),
    /// The path exists, but has no rollouts.
    #[error(
        "{} has nothing to show: expected a job directory (config.json), a directory of jobs, a data directory of a \
         proxy, or a .jsonl or .parquet file of rollouts",
        .0.display()
    )]
    Nothing(PathBuf),
    /// The directory cannot be listed, or the captures cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// The jobs of a viewer, each with a name of its own.
#[derive(Debug)]
pub struct Collection {
    jobs: Vec<Job>,
}

impl Collection {
    /// Finds the jobs at these paths. The jobs of a directory of jobs are sorted by name.
    ///
    /// # Errors
    /// A path does not exist, cannot be read, or has nothing to show.
    pub fn open(paths: &[PathBuf]) -> Result<Self, OpenError> {
        let mut found = Vec::new();
        for path in paths {
            let before = found.len();
            found_at(path, &mut found)?;
            if found.len() == before {
                return Err(OpenError::Nothing(path.clone()));
            }
        }
        let mut names = BTreeSet::new();
        let jobs = found.into_iter().map(|path| Job::new(unique_name(&path, &mut names), path));
        Ok(Self { jobs: jobs.collect() })
    }

    /// Shows the captures of one data directory, which need not exist yet.
    pub fn of_data_dir(path: &Path) -> Self {
        let name = unique_name(path, &mut BTreeSet::new());
        Self { jobs: vec![Job::of_data_dir(name, path.to_owned())] }
    }

    /// Shows the job of one job directory, which need not exist yet.
    pub fn of_job_dir(path: &Path) -> Self {
        let name = unique_name(path, &mut BTreeSet::new());
        Self { jobs: vec![Job::new(name, path.to_owned())] }
    }

    /// Shows this report of `rolltap check --recompute-report` with all jobs, instead of those in their directories.
    ///
    /// # Errors
    /// The report is no file.
    pub fn with_recompute(self, report: &Path) -> Result<Self, OpenError> {
        if !report.is_file() {
            return Err(OpenError::NotFound(report.to_owned()));
        }
        let report = Arc::new(Reports::of_file(report.to_owned()));
        let jobs = self.jobs.into_iter().map(|job| job.with_recompute(Arc::clone(&report)));
        Ok(Self { jobs: jobs.collect() })
    }

    /// Returns all jobs, in the order of the paths.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Reads the trial of this name, or the only trial whose name begins so.
    ///
    /// # Errors
    /// No trial has the name, or several names begin so.
    pub fn trial(&self, name: &str) -> Result<TrialContent, TrialError> {
        let contents: Vec<_> = self.jobs.iter().map(Job::content).collect();
        if let Some(exact) = contents.iter().find_map(|content| content.trial(name)) {
            return Ok(exact);
        }
        let ids = |content: &Arc<JobContent>| {
            content.trials.iter().map(|trial| trial.id.clone()).collect::<Vec<_>>()
        };
        let found: Vec<String> = contents.iter().flat_map(ids).filter(|id| id.starts_with(name)).collect();
        let [only] = &found[..] else {
            let name = name.to_owned();
            return Err(if found.is_empty() {
                TrialError::None(name)
            } else {
                TrialError::Several { name, found }
            });
        };
        let read = contents.iter().find_map(|content| content.trial(only));
        read.ok_or_else(|| TrialError::None(name.to_owned()))
    }

    /// Returns the job of this name.
    pub fn job(&self, name: &str) -> Option<&Job> {
        self.jobs.iter().find(|job| job.name() == name)
    }
}

/// Why a trial cannot be chosen by its name.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// No trial has the name.
    #[error("no trial has a name that begins with {0:?}")]
    None(String),
    /// Several trials have names that begin so.
    #[error("{} trials have names that begin with {name:?}: {}", found.len(), listed(found))]
    Several {
        /// The beginning of the name.
        name: String,
        /// The names of the trials.
        found: Vec<String>,
    },
}

fn listed(names: &[String]) -> String {
    const MOST: usize = 5;
    let shown = names.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > MOST { format!("{shown}, …") } else { shown }
}

/// Appends the jobs at `path`.
fn found_at(path: &Path, found: &mut Vec<PathBuf>) -> Result<(), OpenError> {
    let path = match path.canonicalize() {
        Ok(path) => path,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(OpenError::NotFound(path.to_owned()));
        }
        Err(source) => return Err(OpenError::Read { path: path.to_owned(), source }),
    };
    if JobKind::at(&path).is_some() {
        found.push(path);
        return Ok(());
    }
    if !path.is_dir() {
        return Ok(());
    }
    let failed = |source| OpenError::Read { path: path.clone(), source };
    let entries = std::fs::read_dir(&path).map_err(failed)?;
    let mut below = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    below.sort();
    // Only job directories: a file of rollouts in a directory of jobs is not meant as a job.
    found.extend(below.into_iter().filter(|path| path.join("config.json").is_file()));
    Ok(())
}

/// Returns the last part of the path, with a number if that name is taken.
fn unique_name(path: &Path, taken: &mut BTreeSet<String>) -> String {
    let last = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let last = last.unwrap_or_else(|| "root".to_owned());
    let numbered = (2..).map(|number| format!("{last}~{number}"));
    let mut names = std::iter::once(last.clone()).chain(numbered);
    let name = names.find(|name| !taken.contains(name)).unwrap_or(last);
    taken.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_one_name_are_numbered() {
        let mut taken = BTreeSet::new();
        let names = ["/a/job", "/b/job", "/c/job"].map(|path| unique_name(Path::new(path), &mut taken));
        assert_eq!(names, ["job", "job~2", "job~3"]);
    }

    #[test]
    fn a_path_without_rollouts_is_an_error_that_names_what_was_expected() {
        let dir = tempfile::tempdir().unwrap();
        let error = Collection::open(&[dir.path().to_owned()]).unwrap_err();
        assert!(error.to_string().contains("expected a job directory"), "{error}");
        let error = Collection::open(&[dir.path().join("absent")]).unwrap_err();
        assert!(matches!(error, OpenError::NotFound(_)), "{error}");
    }
}

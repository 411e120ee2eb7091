//! Inspects a task directory for its author: finds everything that is wrong with it, with file and line.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rolltap_rollout::ids::TaskId;
use serde::Serialize;

use super::document::Document;
use super::files::leads_out;
use super::{CONFIG, Examined, Runner, Task, TaskError, TaskWarning, UsedTables};

/// The weight of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The task cannot be used.
    Error,
    /// The task can be used, and something in it may be a mistake.
    Warning,
}

/// A problem of a task directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// The file or directory.
    pub file: PathBuf,
    /// The line, from 1. `None` if the problem is not in a line.
    pub line: Option<usize>,
    /// The weight of the problem.
    pub severity: Severity,
    /// The key of `task.toml`, with its section.
    pub key: Option<String>,
    /// The problem, in one line.
    pub message: String,
}

/// The result of an inspection.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The directory, as the user named it.
    pub dir: PathBuf,
    /// The task. `None` if it has errors.
    pub task: Option<Task>,
    /// The problems, sorted by file and line.
    pub problems: Vec<Problem>,
}

impl fmt::Display for Problem {
    /// Writes `FILE:LINE: error: MESSAGE`, which editors understand.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, severity, message, .. } = self;
        write!(f, "{}", file.display())?;
        if let Some(line) = line {
            write!(f, ":{line}")?;
        }
        let severity = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, ": {severity}: {message}")
    }
}

impl Inspection {
    /// Returns whether the task can be used.
    pub fn is_valid(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity != Severity::Error)
    }

    /// Returns the number of problems of this weight.
    pub fn count(&self, severity: Severity) -> usize {
        self.problems.iter().filter(|problem| problem.severity == severity).count()
    }
}

/// Inspects the task in `dir`. Nothing is run, and no variable of this host needs to be set.
pub fn inspect(dir: &Path) -> Inspection {
    let Examined { task, warnings } = Task::examine(dir, Runner::Rolltap);
    let text = fs::read_to_string(dir.join(CONFIG)).unwrap_or_default();
    let mut found = Finder {
        dir,
        root: dir.canonicalize().ok(),
        document: Document::parse_anyway(&text),
        problems: Vec::new(),
    };
    found.files(dir);
    warnings.iter().for_each(|warning| found.warning(warning));
    let task = match task {
        Ok(task) => {
            found.task(&task);
            Some(task)
        }
        Err(errors) => {
            errors.iter().for_each(|error| found.error(error));
            None
        }
    };
    let mut problems = found.problems;
    problems.sort();
    // A file that cannot be read is found by both the loader and the walk over all files.
    problems.dedup();
    let mut inspection = Inspection { dir: dir.to_owned(), task, problems };
    if !inspection.is_valid() {
        inspection.task = None;
    }
    inspection
}

struct Finder<'a> {
    /// The directory, as the user named it.
    dir: &'a Path,
    /// The same directory as the loader names it.
    root: Option<PathBuf>,
    document: Document<'a>,
    problems: Vec<Problem>,
}

impl Finder<'_> {
    fn add(&mut self, severity: Severity, file: &Path, key: Option<&str>, message: String) {
        let line = key.and_then(|key| self.document.line_of(key));
        self.add_at(line, severity, file, key, message);
    }

    fn add_at(
        &mut self,
        line: Option<usize>,
        severity: Severity,
        file: &Path,
        key: Option<&str>,
        message: String,
    ) {
        let below = self.root.as_ref().and_then(|root| file.strip_prefix(root).ok());
        let file = below.map_or_else(|| file.to_owned(), |below| self.dir.join(below));
        let key = key.map(str::to_owned);
        self.problems.push(Problem { file, line, severity, key, message });
    }

    fn error(&mut self, error: &TaskError) {
        let message = error.problem();
        match error {
            TaskError::Toml { path, line, .. } => self.add_at(*line, Severity::Error, path, None, message),
            TaskError::Unsupported { dir, what } => {
                for what in what {
                    // The text begins with the key.
                    let key = what.split(' ').next();
                    let message = format!("{what}: rolltap does not support this yet");
                    self.add(Severity::Error, &dir.join(CONFIG), key, message);
                }
            }
            _ => self.add(Severity::Error, error.path(), error.key(), message),
        }
    }

    fn warning(&mut self, warning: &TaskWarning) {
        if let TaskWarning::UnknownKeys { path, keys } = warning {
            for key in keys {
                let message = format!("{key}: ignoring a key that Harbor does not know");
                self.add(Severity::Warning, path, Some(key), message);
            }
            return;
        }
        let (text, path) = (warning.to_string(), warning.path());
        let message = text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text);
        self.add(Severity::Warning, path, warning.key(), message.to_owned());
    }

    /// Adds the problems of a task that can be loaded.
    fn task(&mut self, task: &Task) {
        let config = task.dir.join(CONFIG);
        if let Err(error) = TaskId::new(&task.name) {
            self.add(
                Severity::Error,
                &config,
                Some("task.name"),
                format!("the name cannot be used: {error}"),
            );
        }
        for script in task.solution_scripts().into_iter().filter(|script| !script.is_file()) {
            let message = "missing: agent oracle cannot prove that the task can be solved";
            self.add(Severity::Warning, &script, None, message.to_owned());
        }
        let missing = task.clone().resolve(UsedTables::ALL).err().unwrap_or_default();
        for missing in missing {
            let message = format!("the environment variable {} is not set on this host", missing.variable);
            self.add(Severity::Warning, &config, Some(&missing.key), message);
        }
    }

    /// Adds the files below a directory that cannot be copied into an environment, or that Harbor refuses.
    fn files(&mut self, dir: &Path) {
        let entries = match dir.read_dir() {
            Ok(entries) => entries,
            Err(error) => {
                // The loader reports a missing task directory.
                if dir != self.dir {
                    self.add(Severity::Error, dir, None, format!("cannot be read: {error}"));
                }
                return;
            }
        };
        let mut paths: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let Ok(metadata) = path.symlink_metadata() else { continue };
            if metadata.is_dir() {
                self.files(&path);
            } else if metadata.is_symlink() {
                self.link(&path);
            } else if !metadata.is_file() {
                let message = "a pipe, socket or device, which is not copied into environments";
                self.add(Severity::Warning, &path, None, message.to_owned());
            } else if let Err(error) = File::open(&path) {
                self.add(Severity::Error, &path, None, format!("cannot be read: {error}"));
            }
        }
    }

    /// Adds a link out of the task below `tests`, `solution` or `steps`. Harbor refuses it, and rolltap copies the link
    /// itself.
    fn link(&mut self, path: &Path) {
        let below = path.strip_prefix(self.dir).unwrap_or(path);
        let is_input = ["tests", "solution", "steps"].iter().any(|dir| below.starts_with(dir));
        let target = fs::read_link(path).unwrap_or_default();
        let leaves = match path.canonicalize() {
            Ok(resolved) => !self.root.as_ref().is_some_and(|root| resolved.starts_with(root)),
            Err(_) => leads_out(below, &target),
        };
        if is_input && leaves {
            let message = format!(
                "a link out of the task, to {}: Harbor refuses the task, and rolltap copies the link itself",
                target.display()
            );
            self.add(Severity::Warning, path, None, message);
        }
    }
}

/// Returns an error for each task whose name another task before it has. Both would form one group.
pub fn same_names(inspections: &mut [Inspection]) {
    let mut seen: BTreeMap<String, PathBuf> = BTreeMap::new();
    for inspection in inspections {
        let Some(name) = inspection.task.as_ref().map(|task| task.name.clone()) else { continue };
        let Some(first) = seen.get(&name) else {
            seen.insert(name, inspection.dir.clone());
            continue;
        };
        let message = format!("the task in {} has the same name, {name:?}", first.display());
        inspection.problems.push(Problem {
            file: inspection.dir.join(CONFIG),
            line: None,
            severity: Severity::Error,
            key: Some("task.name".to_owned()),
            message,
        });
        inspection.task = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::task_dir;
    use super::*;

    fn lines(dir: &Path) -> Vec<String> {
        let shown = |problem: &Problem| problem.to_string().replace(&dir.display().to_string(), "DIR");
        inspect(dir).problems.iter().map(shown).collect()
    }

    #[test]
    fn every_problem_has_its_file_and_line() {
        let dir = task_dir(
            "[agent]\ntimeout_sec = 0\nimeout_sec = 3\n\n[environment]\nworkdir = \"app\"\n\n[verifier.env]\nKEY = \"${UNSET_IN_TEST}\"\n",
        );
        fs::remove_file(dir.path().join("tests/test.sh")).unwrap();
        assert_eq!(
            lines(dir.path()),
            [
                "DIR/task.toml:2: error: agent.timeout_sec = 0: expected a number of seconds above 0 and at most 1000000000",
                "DIR/task.toml:3: warning: agent.imeout_sec: ignoring a key that Harbor does not know",
                "DIR/task.toml:6: error: environment.workdir = \"app\": expected an absolute path",
            ],
            "files are checked once task.toml is valid"
        );
        fs::write(dir.path().join("task.toml"), "[verifier.env]\nKEY = \"${UNSET_IN_TEST}\"\n").unwrap();
        assert_eq!(
            lines(dir.path()),
            ["DIR/tests/test.sh: error: missing, expected the script that writes the reward"]
        );
        fs::write(dir.path().join("tests/test.sh"), "").unwrap();
        assert_eq!(
            lines(dir.path()),
            [
                "DIR/solution/solve.sh: warning: missing: agent oracle cannot prove that the task can be solved",
                "DIR/task.toml:2: warning: the environment variable UNSET_IN_TEST is not set on this host",
            ]
        );
    }

    #[test]
    fn odd_files_are_problems_and_odd_names_are_not() {
        let parent = task_dir("");
        let dir = parent.path().join("näme with späces");
        fs::rename(task_dir("[environment]\ngpus = 1\n").keep(), &dir).unwrap();
        fs::create_dir(dir.join("solution")).unwrap();
        fs::write(dir.join("solution/solve.sh"), "").unwrap();
        std::os::unix::fs::symlink("../../elsewhere", dir.join("tests/out")).unwrap();
        std::os::unix::fs::symlink("test.sh", dir.join("tests/in")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.join("environment/out")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(dir.join("tests/pipe")).status().unwrap();
        assert!(made.success());
        assert_eq!(
            lines(&dir),
            [
                "DIR/task.toml:2: error: environment.gpus: rolltap does not support this yet",
                "DIR/tests/out: warning: a link out of the task, to ../../elsewhere: Harbor refuses the task, and rolltap \
                 copies the link itself",
                "DIR/tests/pipe: warning: a pipe, socket or device, which is not copied into environments",
            ]
        );
    }

    #[test]
    fn a_link_to_a_missing_file_of_the_task_stays_in_it() {
        let dir = task_dir("");
        std::os::unix::fs::symlink("../missing", dir.path().join("tests/in")).unwrap();
        // The user may name the directory by another path than its own.
        let alias = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(dir.path(), alias.path().join("task")).unwrap();
        let found = inspect(&alias.path().join("task"));
        let links: Vec<_> = found.problems.iter().filter(|one| one.message.contains("link")).collect();
        assert!(links.is_empty(), "{links:?}");
    }

    #[test]
    fn two_tasks_of_one_name_are_an_error() {
        let dirs = [task_dir("[task]\nname = \"a/b\"\n"), task_dir("[task]\nname = \"a/b\"\n")];
        let mut inspections = dirs.each_ref().map(|dir| inspect(dir.path()));
        same_names(&mut inspections);
        assert!(inspections[0].is_valid() && !inspections[1].is_valid());
        let message = &inspections[1].problems.last().unwrap().message;
        assert!(message.contains("has the same name, \"a/b\""), "{message}");
    }
}

//! `rolltap tasks check`: inspects task directories, and runs the gate at the valid ones.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::gate::{GateReport, GateSettings, GateVerdict, run_gate};
use super::{JobError, Progress};
use crate::common::cancellation::Cancellation;
use crate::common::words::counted;
use crate::task::{
    Inspection, MissingVariables, Problem, Severity, TaskError, UsedTables, directories, inspect, same_names,
};

/// The result of a check of task directories.
#[derive(Debug)]
pub struct TasksReport {
    /// The tasks, in the order of their directories.
    pub tasks: Vec<CheckedTask>,
    /// The directory of the gate's job. `None` if no agent ran.
    pub job: Option<PathBuf>,
    /// Problems of the gate that are not those of one task.
    pub problems: Vec<String>,
}

/// A task directory with its problems.
#[derive(Debug)]
pub struct CheckedTask {
    /// The result of the inspection. Problems of the gate are added.
    pub inspection: Inspection,
    /// The verdicts of the gate.
    pub verdicts: Vec<GateVerdict>,
}

/// Inspects the tasks at these paths. Each is a task directory or a directory of such directories.
///
/// # Errors
/// Fails if a path has no task.
pub fn inspect_all(paths: &[PathBuf]) -> Result<TasksReport, TaskError> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    for path in paths {
        // A task that two paths contain is checked once.
        dirs.extend(directories(path)?.into_iter().filter(|dir| !dirs.contains(dir)).collect::<Vec<_>>());
    }
    let mut inspections: Vec<_> = dirs.iter().map(|dir| inspect(dir)).collect();
    same_names(&mut inspections);
    let checked = |inspection| CheckedTask { inspection, verdicts: Vec::new() };
    let tasks = inspections.into_iter().map(checked).collect();
    Ok(TasksReport { tasks, job: None, problems: Vec::new() })
}

impl TasksReport {
    /// Runs the agents of the gate at the valid tasks, and adds their problems.
    ///
    /// # Errors
    /// Fails if the job cannot start.
    pub async fn run_gate(
        &mut self,
        settings: GateSettings,
        progress: Progress,
        cancellation: Cancellation,
    ) -> Result<(), JobError> {
        let used = UsedTables { solution: settings.oracle, verifier: true, mcp_servers: false };
        let mut ready = Vec::new();
        for task in &mut self.tasks {
            task.needs_for_gate(&settings, used);
            ready.extend(task.inspection.task.clone().filter(|_| task.inspection.is_valid()));
        }
        if ready.is_empty() {
            return Ok(());
        }
        let GateReport { verdicts, job } = run_gate(ready, settings, progress, cancellation).await?;
        self.problems.extend(job.problems.clone());
        let missing = job.planned.saturating_sub(job.trials.len());
        if missing > 0 {
            self.problems.push(format!("{missing} of {} trials did not run", job.planned));
        }
        self.job = Some(job.dir.path().to_owned());
        for verdict in verdicts {
            let of = |task: &&mut CheckedTask| {
                task.inspection.task.as_ref().is_some_and(|found| found.dir == verdict.dir)
            };
            if let Some(task) = self.tasks.iter_mut().find(of) {
                task.add(verdict);
            }
        }
        Ok(())
    }

    /// Returns whether every task is valid and passes the gate.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.tasks.iter().all(|task| task.inspection.is_valid())
    }

    /// Returns the report for programs.
    pub fn to_json(&self) -> Value {
        let invalid = self.invalid();
        let task = |CheckedTask { inspection, verdicts }: &CheckedTask| {
            json!({
                "dir": inspection.dir,
                "name": inspection.task.as_ref().map(|task| &task.name),
                "valid": inspection.is_valid(),
                "problems": inspection.problems,
                "agents": verdicts,
            })
        };
        json!({
            "tasks": self.tasks.iter().map(task).collect::<Vec<_>>(),
            "valid": self.tasks.len() - invalid,
            "invalid": invalid,
            "job": self.job,
            "problems": self.problems,
        })
    }

    fn invalid(&self) -> usize {
        self.tasks.iter().filter(|task| !task.inspection.is_valid()).count()
    }
}

impl CheckedTask {
    /// Adds what the gate needs of the task and of this host.
    fn needs_for_gate(&mut self, settings: &GateSettings, used: UsedTables) {
        let Some(task) = self.inspection.task.clone() else { return };
        let mut problems = Vec::new();
        if let Some(what) = settings.environment.unsupported(&task) {
            let message = format!("environment \"{}\" cannot honour {what}", settings.environment);
            problems.push((self.inspection.dir.clone(), message));
        }
        let scripts = task.solution_scripts();
        for script in scripts.iter().filter(|script| settings.oracle && !script.is_file()) {
            let message = "missing, expected the solution that agent oracle runs".to_owned();
            problems.push((self.shown(&task.dir, script), message));
        }
        if let Err(missing) = task.clone().resolve(used) {
            let error = MissingVariables::check(missing).err();
            let file = self.inspection.dir.join("task.toml");
            problems.extend(error.map(|error| (file, error.to_string().replace('\n', " "))));
        }
        for (file, message) in problems {
            self.error(file, message);
        }
    }

    /// Returns a path of the task as the user names the directory.
    fn shown(&self, root: &Path, path: &Path) -> PathBuf {
        path.strip_prefix(root).map_or_else(|_| path.to_owned(), |below| self.inspection.dir.join(below))
    }

    fn add(&mut self, verdict: GateVerdict) {
        if let Some(problem) = &verdict.problem {
            let message = format!("{problem} (logs: {})", verdict.trial.display());
            self.error(self.inspection.dir.clone(), message);
        }
        self.verdicts.push(verdict);
    }

    fn error(&mut self, file: PathBuf, message: String) {
        let severity = Severity::Error;
        self.inspection.problems.push(Problem { file, line: None, severity, key: None, message });
    }
}

impl fmt::Display for TasksReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in self.tasks.iter().flat_map(|task| &task.inspection.problems) {
            writeln!(f, "{problem}")?;
        }
        for problem in &self.problems {
            writeln!(f, "error: {problem}")?;
        }
        let (all, invalid) = (self.tasks.len(), self.invalid());
        let warnings: usize = self.tasks.iter().map(|task| task.inspection.count(Severity::Warning)).sum();
        write!(f, "{}", counted(all as u64, "task"))?;
        match invalid {
            0 => write!(f, ", all valid")?,
            _ => write!(f, ", {} valid, {invalid} with errors", all - invalid)?,
        }
        if warnings > 0 {
            write!(f, ", {}", counted(warnings as u64, "warning"))?;
        }
        let verdicts = || self.tasks.iter().flat_map(|task| &task.verdicts);
        for agent in ["oracle", "nop"] {
            let of_agent = || verdicts().filter(|verdict| verdict.agent == agent);
            let passed = of_agent().filter(|verdict| verdict.problem.is_none()).count();
            if of_agent().count() > 0 {
                write!(
                    f,
                    "; {agent} as expected at {passed} of {}",
                    counted(of_agent().count() as u64, "task")
                )?;
            }
        }
        match &self.job {
            Some(job) => write!(f, "\njob: {}", job.display()),
            None => Ok(()),
        }
    }
}

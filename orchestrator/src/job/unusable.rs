//! Tasks of a job that cannot be used. All of them are reported at once, before the job starts.

use std::fmt;
use std::path::{Path, PathBuf};

use super::JobSettings;
use super::tasks::JobTask;
use crate::agents::AgentSpec;
use crate::task::TaskError;

/// The most tasks that an error lists.
const LISTED: usize = 100;

/// A task directory that cannot be used, with everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableTask {
    /// The task directory.
    pub dir: PathBuf,
    /// The problems. Each names a file or the directory.
    pub problems: Vec<String>,
}

impl UnusableTask {
    /// Makes an unusable task of the errors in its files.
    pub(super) fn of(dir: &Path, errors: &[TaskError]) -> Self {
        let problem = |error: &TaskError| crate::failure::chain(error);
        Self { dir: dir.to_owned(), problems: errors.iter().map(problem).collect() }
    }
}

/// The tasks of a job that cannot be used. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnusableTasks {
    /// The tasks.
    pub tasks: Vec<UnusableTask>,
    /// The number of tasks of the job that can be used.
    pub usable: usize,
}

impl fmt::Display for UnusableTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bad, all) = (self.tasks.len(), self.tasks.len() + self.usable);
        match all {
            1 => write!(f, "the task cannot be used:")?,
            _ => write!(f, "{bad} of {all} tasks cannot be used:")?,
        }
        self.list(f)?;
        match self.usable {
            0 => Ok(()),
            1 => write!(f, "\n--skip-invalid runs the other task"),
            usable => write!(f, "\n--skip-invalid runs the other {usable} tasks"),
        }
    }
}

/// Writes each problem of these tasks in lines of its own.
pub(super) fn write_problems(out: &mut impl fmt::Write, tasks: &[UnusableTask]) -> fmt::Result {
    for problem in tasks.iter().flat_map(|task| &task.problems) {
        // Some problems have an excerpt of the file in further lines.
        write!(out, "\n  {}", problem.replace('\n', "\n    "))?;
    }
    Ok(())
}

impl UnusableTasks {
    /// Whether they keep the job from starting.
    pub(super) fn stop_the_job(&self, skip_invalid: bool) -> bool {
        !skip_invalid || self.usable == 0
    }

    fn list(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_problems(f, self.tasks.get(..LISTED).unwrap_or(&self.tasks))?;
        match self.tasks.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more tasks: `rolltap tasks check` lists them"),
        }
    }
}

/// The tasks that a job leaves out, as a warning.
#[derive(Debug)]
pub struct SkippedTasks<'a>(pub &'a UnusableTasks);

impl fmt::Display for SkippedTasks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(unusable) = self;
        let all = unusable.tasks.len() + unusable.usable;
        let is = if unusable.tasks.len() == 1 { "is" } else { "are" };
        write!(f, "{} of {all} tasks {is} skipped:", unusable.tasks.len())?;
        unusable.list(f)
    }
}

/// Moves the tasks that the job's environment and agents cannot use to the unusable ones. Returns all unusable tasks,
/// or `None` if there is none.
pub(super) fn set_apart(settings: &mut JobSettings) -> Option<UnusableTasks> {
    let mut unusable = std::mem::take(&mut settings.unusable);
    let mut usable = Vec::new();
    for task in std::mem::take(&mut settings.tasks) {
        let problems = problems(settings, &task);
        match problems.is_empty() {
            true => usable.push(task),
            false => unusable.push(UnusableTask { dir: task.task.dir.clone(), problems }),
        }
    }
    settings.tasks = usable;
    (!unusable.is_empty()).then_some(UnusableTasks { tasks: unusable, usable: settings.tasks.len() })
}

/// Returns the problems of a valid task with the environment and the agents of the job.
fn problems(settings: &JobSettings, JobTask { task, .. }: &JobTask) -> Vec<String> {
    let dir = task.dir.display();
    let mut problems = Vec::new();
    if let Some(what) = settings.environment.unsupported(task) {
        problems.push(format!("{dir}: environment \"{}\" cannot honour {what}", settings.environment));
    }
    for agent in &settings.agents {
        let name = agent.spec.name();
        if let Some(what) = agent.spec.would_not_see(&agent.sees(task)) {
            problems.push(format!("{dir}: gives its agent {what}, and agent \"{name}\" takes none"));
        }
        if agent.spec == AgentSpec::Oracle {
            let missing = task.solution_scripts().into_iter().filter(|script| !script.is_file());
            problems.extend(missing.map(|script| {
                format!("{}: missing, expected the solution that agent \"oracle\" runs", script.display())
            }));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unusable(bad: usize, usable: usize) -> UnusableTasks {
        let task = |at: usize| UnusableTask {
            dir: PathBuf::from(format!("t{at}")),
            problems: vec![format!("t{at}/tests/test.sh: missing"), format!("t{at}/task.toml: wrong\n  |")],
        };
        UnusableTasks { tasks: (0..bad).map(task).collect(), usable }
    }

    #[test]
    fn all_bad_tasks_are_listed_with_their_number() {
        assert_eq!(
            unusable(1, 20).to_string(),
            "1 of 21 tasks cannot be used:\n  t0/tests/test.sh: missing\n  t0/task.toml: wrong\n      |\n\
             --skip-invalid runs the other 20 tasks"
        );
        let only = unusable(1, 0).to_string();
        assert!(only.starts_with("the task cannot be used:\n  t0") && !only.contains("skip"), "{only}");
        let many = unusable(LISTED + 7, 1).to_string();
        assert!(many.contains("\n  and 7 more tasks: `rolltap tasks check` lists them\n"), "{many}");
        assert!(many.ends_with("runs the other task"), "{many}");
        let skipped = unusable(2, 3);
        assert!(SkippedTasks(&skipped).to_string().starts_with("2 of 5 tasks are skipped:\n  t0"));
    }
}

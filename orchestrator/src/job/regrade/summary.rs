//! The progress and the summary of a later verification, for people.

use std::collections::BTreeMap;
use std::fmt;

use rolltap_rollout::ids::RewardVersion;

use super::RegradeReport;
use super::records::{changes, means};
use super::report::{Outcome, RegradedTrial, Standing};
use crate::common::shell::word;
use crate::common::shown_path::shown;
use crate::common::words::{counted, number};
use crate::job::summary::table::{Column, Table};
use crate::job_dir::JobDir;

/// The most trials with a row each.
const ROWS: usize = 20;

/// Returns the line at the beginning.
pub(super) fn beginning(job: &JobDir, version: &RewardVersion, trials: usize, is_continued: bool) -> String {
    let verb = if is_continued { "completing" } else { "making" };
    let trials = counted(trials as u64, "completed trial");
    format!("{verb} version {version} of the rewards of {}: {trials}", shown(job.path()).display())
}

/// Returns the line of a trial that ended.
pub(super) fn line(trial: &RegradedTrial, ended: usize, all: usize) -> String {
    let before = cell(Some(&trial.before));
    let result = match (trial.outcome, &trial.reason) {
        (Outcome::Regraded, _) => format!("reward {before} -> {}", cell(trial.after.as_ref())),
        (Outcome::Unchanged, Some(why)) => format!("reward {before} stays: {why}"),
        (Outcome::Refused, Some(why)) => format!("not regraded: it {why}"),
        (_, why) => format!("failed: {}", why.as_deref().unwrap_or("unknown")),
    };
    format!("[{ended}/{all}] {}  {result}", trial.trial)
}

fn cell(standing: Option<&Standing>) -> String {
    let Some(standing) = standing else { return "-".to_owned() };
    match (standing.reward, &standing.failure) {
        (Some(reward), _) => number(reward),
        (None, Some(failure)) => format!("none ({})", failure.cause),
        (None, None) if standing.rewards.is_empty() => "none".to_owned(),
        (None, None) => crate::trial::in_words(&standing.rewards, |value| number(*value)),
    }
}

/// Displays a report as text for people.
#[derive(Debug)]
pub struct RegradeSummary<'a>(pub &'a RegradeReport);

impl fmt::Display for RegradeSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        if report.trials.len() <= ROWS {
            writeln!(f, "{}\n", trials_table(&report.trials))?;
        }
        writeln!(f, "{}\n", tasks_table(&report.trials))?;
        for (why, count) in reasons(&report.trials) {
            let trials = counted(count as u64, "trial");
            writeln!(f, "not regraded: {trials}: {why}")?;
        }
        if report.left > 0 {
            writeln!(f, "{} of {} trials were not reached", report.left, report.left + report.trials.len())?;
        }
        for problem in &report.problems {
            writeln!(f, "problem: {problem}")?;
        }
        if let Some(files) = &report.rollouts {
            writeln!(f, "rollouts: {}", files.jsonl.display())?;
            writeln!(f, "          {} ({} rows)", files.parquet.display(), files.rows)?;
        }
        let (job, version) = (word(&shown(report.job.path()).to_string_lossy()), &report.version);
        if report.is_clean() {
            writeln!(f, "export:   rolltap export {job} --reward-version {version} --format FORMAT -o PATH")?;
        } else {
            writeln!(f, "complete: rolltap regrade {job} --name {version}")?;
        }
        write!(f, "version:  {}", report.dir.path().display())
    }
}

fn trials_table(trials: &[RegradedTrial]) -> Table {
    let numbers = ["sample", "before", "after"].map(Column::number);
    let columns = [Column::text("task")].into_iter().chain(numbers).chain([Column::text("note")]);
    let mut table = Table::new(columns.collect(), None);
    for trial in trials {
        let note = match trial.outcome {
            Outcome::Regraded => "",
            Outcome::Unchanged => "unchanged",
            Outcome::Refused => "not regraded",
            Outcome::Failed => "failed",
        };
        table.row([
            trial.task.clone(),
            trial.sample_index.to_string(),
            cell(Some(&trial.before)),
            cell(trial.after.as_ref()),
            note.to_owned(),
        ]);
    }
    table
}

fn tasks_table(trials: &[RegradedTrial]) -> Table {
    let mut by_task: BTreeMap<&str, Vec<&RegradedTrial>> = BTreeMap::new();
    for trial in trials {
        by_task.entry(&trial.task).or_default().push(trial);
    }
    let numbers = ["trials", "regraded", "mean before", "mean after", "up", "down"].map(Column::number);
    let mut table = Table::new([Column::text("task")].into_iter().chain(numbers).collect(), None);
    let all = (by_task.len() > 1).then(|| ("all tasks", trials.iter().collect()));
    for (task, trials) in by_task.into_iter().chain(all) {
        let shown = |mean: Option<f64>| mean.map_or("-".to_owned(), number);
        let (before, after) = means(&trials);
        let (up, down) = changes(&trials);
        let regraded = trials.iter().filter(|trial| trial.outcome == Outcome::Regraded).count();
        table.row([
            task.to_owned(),
            trials.len().to_string(),
            regraded.to_string(),
            shown(before),
            shown(after),
            up.to_string(),
            down.to_string(),
        ]);
    }
    table
}

/// Counts the reasons for which chosen trials have no new reward.
fn reasons(trials: &[RegradedTrial]) -> BTreeMap<&str, usize> {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let is_missing = |trial: &&RegradedTrial| matches!(trial.outcome, Outcome::Refused | Outcome::Failed);
    for why in trials.iter().filter(is_missing).filter_map(|trial| trial.reason.as_deref()) {
        *reasons.entry(why).or_default() += 1;
    }
    reasons
}

//! What a job's user reads at its end: a line per trial, a line per task, and where the rollouts lie.

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::job::JobReport;
use crate::trial::TrialOutcome;

/// A job's report as text for people.
#[derive(Debug)]
pub struct Summary<'a>(pub &'a JobReport);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        writeln!(f, "{}\n", trials_table(&report.trials))?;
        writeln!(f, "{}\n", tasks_table(&report.trials))?;
        let missing = report.planned.saturating_sub(report.trials.len());
        if missing > 0 {
            writeln!(f, "{missing} of {} trials did not run", report.planned)?;
        }
        for problem in &report.problems {
            writeln!(f, "problem: {problem}")?;
        }
        if let Some(files) = &report.rollouts {
            writeln!(f, "rollouts: {}", files.jsonl.display())?;
            writeln!(f, "          {} ({} rows)", files.parquet.display(), files.rows)?;
        }
        write!(f, "job:      {}", report.dir.path().display())
    }
}

fn trials_table(trials: &[TrialOutcome]) -> Table {
    let header = ["task", "sample", "reward", "calls", "tokens in", "out", "branches", "seconds", "failure"];
    let mut table = table(&header, 1..8);
    for trial in trials {
        let count = |of: fn(&rolltap_proxy::api::TrialStatus) -> u64| {
            trial.status.as_ref().map_or("-".to_owned(), |status| of(status).to_string())
        };
        table.add_row([
            trial.task_name.clone(),
            trial.sample_index.to_string(),
            trial.reward.map_or("-".to_owned(), number),
            count(|status| status.calls.total),
            count(|status| status.prompt_tokens),
            count(|status| status.completion_tokens),
            count(|status| status.branches),
            format!("{:.1}", trial.duration().as_secs_f64()),
            trial.failure.as_ref().map(|failure| failure.cause.name().to_owned()).unwrap_or_default(),
        ]);
    }
    table
}

/// Figures of one task's trials. Only valid rewards count: a trial whose sandbox broke says nothing about the model.
#[derive(Default)]
struct TaskFigures {
    trials: usize,
    failed: usize,
    rewards: Vec<f64>,
}

fn tasks_table(trials: &[TrialOutcome]) -> Table {
    let mut tasks: BTreeMap<&str, TaskFigures> = BTreeMap::new();
    for trial in trials {
        let figures = tasks.entry(&trial.task_name).or_default();
        figures.trials += 1;
        figures.failed += usize::from(trial.failure.is_some());
        figures.rewards.extend(trial.reward.filter(|_| trial.reward_is_valid()));
    }
    let mut table = table(&["task", "trials", "with reward", "mean reward", "pass rate", "failed"], 1..6);
    for (task, TaskFigures { trials, failed, rewards }) in tasks {
        let share =
            |part: f64| if rewards.is_empty() { "-".to_owned() } else { number(part / rewards.len() as f64) };
        // Harbor's convention: a reward of 1 is a pass.
        let passed = rewards.iter().filter(|reward| **reward >= 1.0).count();
        table.add_row([
            task.to_owned(),
            trials.to_string(),
            rewards.len().to_string(),
            share(rewards.iter().sum()),
            share(passed as f64),
            failed.to_string(),
        ]);
    }
    table
}

fn table(header: &[&str], right_aligned: std::ops::Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for index in right_aligned {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// At most three decimals, and none that say nothing.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let written = [1.0, 0.5, 0.0, -0.0001, 2.0 / 3.0, 100.0].map(number);
        assert_eq!(written, ["1", "0.5", "0", "0", "0.667", "100"]);
    }
}

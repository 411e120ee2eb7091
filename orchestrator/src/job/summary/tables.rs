//! The tables of a summary.

use std::collections::BTreeMap;

use anstyle::Style;
use rolltap_proxy::api::{Cost, TrialStatus};
use rolltap_rollout::branch_cause::BranchCause;

use super::rewards;
use super::table::{Column, Table};
use super::totals::{Figures, Totals, has_several_agents, work};
use crate::common::style::{BAD, PLAIN, of_reward, truncated};
use crate::common::words::number;
use crate::trial::TrialOutcome;

/// The most characters of an example of a failure where no terminal has a width.
const LONGEST_EXAMPLE: usize = 120;

/// In a narrower terminal, the table of trials lacks the figures that the totals have.
const NARROW: usize = 100;

/// A row per trial. Figures of calls have columns only if there are calls.
pub(super) fn trials(trials: &[TrialOutcome], width: Option<usize>) -> Table {
    let has_calls = trials.iter().any(|trial| calls(trial) > 0);
    let has_remarks = trials.iter().any(|trial| !remarks(trial).is_empty());
    let mut columns =
        vec![Column::text("task"), Column::number("sample"), Column::number("reward").styled(reward_style)];
    let is_narrow = width.is_some_and(|width| width < NARROW);
    if has_calls {
        columns.push(Column::number("calls"));
    }
    if has_calls && !is_narrow {
        columns.extend(["tokens in", "out", "branches"].map(Column::number));
    }
    columns.push(Column::number("seconds"));
    if has_remarks {
        columns.push(Column::text("failure").styled(|_| BAD));
    }
    let mut table = Table::new(columns, width);
    let several = has_several_agents(trials);
    for trial in trials {
        let count = |of: fn(&TrialStatus) -> u64| {
            trial.status.as_ref().map_or("-".to_owned(), |status| of(status).to_string())
        };
        let mut row = vec![
            work(trial, &trial.task_name, several),
            trial.sample_index.to_string(),
            rewards::cell(trial),
        ];
        if has_calls {
            row.push(count(|status| status.calls.total));
        }
        if has_calls && !is_narrow {
            row.push(count(|status| status.prompt_tokens));
            row.push(count(|status| status.completion_tokens));
            row.push(count(|status| status.branches));
        }
        row.push(format!("{:.1}", trial.duration().as_secs_f64()));
        if has_remarks {
            row.push(remarks(trial));
        }
        table.row(row);
    }
    table
}

/// Returns the cause of the trial's failure, and a mark if the trial is suspected of cheating.
fn remarks(trial: &TrialOutcome) -> String {
    let cause = trial.failure.as_ref().map(|failure| failure.cause.name());
    let mark = trial.is_suspicious().then_some("suspicious");
    cause.into_iter().chain(mark).collect::<Vec<_>>().join(", ")
}

fn calls(trial: &TrialOutcome) -> u64 {
    trial.status.as_ref().map_or(0, |status| status.calls.total)
}

/// Returns the style of a cell with a reward. Named rewards have none.
fn reward_style(cell: &str) -> Style {
    cell.parse().map_or(PLAIN, of_reward)
}

fn failed_style(cell: &str) -> Style {
    if cell == "0" { PLAIN } else { BAD }
}

fn columns_of_figures(name: &'static str) -> Vec<Column> {
    vec![
        Column::text(name),
        Column::number("trials"),
        Column::number("with reward"),
        Column::number("mean reward").styled(reward_style),
        Column::number("pass rate").styled(reward_style),
        Column::number("failed").styled(failed_style),
    ]
}

fn row_of_figures(name: &str, figures: &Figures) -> Vec<String> {
    let share = |share: Option<f64>| share.map_or("-".to_owned(), number);
    vec![
        name.to_owned(),
        figures.trials.to_string(),
        figures.rewards.len().to_string(),
        share(figures.mean_reward()),
        share(figures.pass_rate()),
        figures.failed.to_string(),
    ]
}

/// A row per task.
pub(super) fn tasks(totals: &Totals, width: Option<usize>) -> Table {
    let mut table = Table::new(columns_of_figures("task"), width);
    totals.tasks.iter().for_each(|(task, figures)| table.row(row_of_figures(task, figures)));
    table
}

/// A row per set of tasks.
pub(super) fn sets(totals: &Totals, width: Option<usize>) -> Table {
    let has_pass_at_k = totals.sets.values().any(|set| !set.pass_at_k.is_empty());
    let mut columns = columns_of_figures("task set");
    if has_pass_at_k {
        columns.push(Column::text("pass@k"));
    }
    let mut table = Table::new(columns, width);
    for (name, set) in &totals.sets {
        let mut row = row_of_figures(name, &set.figures);
        if has_pass_at_k {
            let of_k: Vec<_> =
                set.pass_at_k.iter().map(|(k, pass)| format!("@{k} {}", number(*pass))).collect();
            row.push(of_k.join(", "));
        }
        table.row(row);
    }
    table
}

/// A row per cause of failures, or `None` without failures.
pub(super) fn failures(totals: &Totals, width: Option<usize>) -> Option<Table> {
    let columns =
        vec![Column::text("failure").styled(|_| BAD), Column::number("trials"), Column::text("for example")];
    let mut table = Table::new(columns, width);
    for (cause, failures) in &totals.failures {
        let example = match width {
            Some(_) => failures.example.clone(),
            None => truncated(&failures.example, LONGEST_EXAMPLE),
        };
        table.row([(*cause).to_owned(), failures.trials.to_string(), example]);
    }
    (!totals.failures.is_empty()).then_some(table)
}

/// Returns a table of causes, or `None` if every trial is one branch from its first call to its last.
pub(super) fn causes(causes: &BTreeMap<BranchCause, Cost>, width: Option<usize>) -> Option<Table> {
    if causes.keys().all(|&cause| cause == BranchCause::FirstCall) {
        return None;
    }
    let columns = vec![
        Column::text("branches started"),
        Column::number("branches"),
        Column::number("new prompt tokens"),
        Column::text("would change it"),
    ];
    let mut table = Table::new(columns, width);
    for (cause, Cost { branches, tokens }) in causes {
        let remedy = remedy(*cause).unwrap_or_default().to_owned();
        table.row([cause.to_string(), branches.to_string(), tokens.to_string(), remedy]);
    }
    Some(table)
}

/// Returns the setting that reduces the branches of this cause. Most causes are behaviour of the agent, which no
/// setting changes.
fn remedy(cause: BranchCause) -> Option<&'static str> {
    match cause {
        BranchCause::TemplateRewroteHistory | BranchCause::StopStringRemoved => Some("--history sampled"),
        BranchCause::Unproven => Some("--tokenizer, --chat-template"),
        BranchCause::UpstreamUnable => Some("a newer vLLM"),
        BranchCause::NoSharedPrefix => Some("--history faithful or sampled"),
        BranchCause::FirstCall
        | BranchCause::OtherChoice
        | BranchCause::Fork
        | BranchCause::SubAgent
        | BranchCause::Compaction
        | BranchCause::HistoryEdited
        | BranchCause::Resampled
        | BranchCause::InputsChanged
        | BranchCause::Ambiguous => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_listed_with_the_setting_that_changes_them() {
        let cost = |branches, tokens| Cost { branches, tokens };
        let mut found = BTreeMap::from([(BranchCause::FirstCall, cost(3, 900))]);
        assert!(causes(&found, None).is_none(), "one branch a trial needs no explanation");
        found.insert(BranchCause::TemplateRewroteHistory, cost(5, 12_345));
        found.insert(BranchCause::SubAgent, cost(1, 20));
        found.insert(BranchCause::StopStringRemoved, cost(2, 7));
        let table = causes(&found, None).unwrap().to_string();
        let row = |cause: &str| -> Vec<_> {
            let line = table.lines().find(|line| line.contains(cause)).unwrap();
            line.split(['│', '┆']).map(str::trim).filter(|cell| !cell.is_empty()).collect()
        };
        assert_eq!(row("template_rewrote"), ["template_rewrote_history", "5", "12345", "--history sampled"]);
        assert_eq!(row("stop_string"), ["stop_string_removed", "2", "7", "--history sampled"]);
        assert_eq!(row("sub_agent"), ["sub_agent", "1", "20"], "that is the agent's own behaviour");
    }
}

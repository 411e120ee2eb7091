//! The summary at the end of a job. It has a line per trial and per task, the causes of branches with their remedies,
//! and the paths of the rollouts.

mod next_steps;
mod rewards;

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use rolltap_proxy::api::{Cost, TrialStatus};
use rolltap_rollout::branch_cause::BranchCause;

use crate::agent_reported::Returned;
use crate::job::JobReport;
use crate::trial::TrialOutcome;

/// Displays a job's report as text for people.
#[derive(Debug)]
pub struct Summary<'a>(pub &'a JobReport);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        writeln!(f, "{}\n", trials_table(&report.trials))?;
        writeln!(f, "{}\n", tasks_table(&report.trials))?;
        if let Some(causes) = causes_table(&causes_of(&report.trials)) {
            writeln!(f, "{causes}\n")?;
        }
        if let Some(line) = empty_line(&report.trials) {
            writeln!(f, "{line}")?;
        }
        for line in rewards::warnings(&report.trials) {
            writeln!(f, "{line}")?;
        }
        for line in returned_lines(&report.trials) {
            writeln!(f, "{line}")?;
        }
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
        write!(f, "job:      {}", report.dir.path().display())?;
        next_steps::next_steps(report).iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

/// Returns a warning with the number of calls that cannot be trained on and their flaws, or `None` if there are none.
fn empty_line(trials: &[TrialOutcome]) -> Option<String> {
    let statuses = || trials.iter().filter_map(|trial| trial.status.as_ref());
    let empty: u64 = statuses().map(TrialStatus::empty_calls).sum();
    if empty == 0 {
        return None;
    }
    let complete: u64 = statuses().map(|status| status.calls.complete).sum();
    let mut flaws: BTreeMap<&str, u64> = BTreeMap::new();
    for (flaw, count) in statuses().flat_map(|status| &status.flaws) {
        *flaws.entry(flaw.as_str()).or_default() += count;
    }
    let flaws: Vec<String> = flaws.iter().map(|(flaw, count)| format!("{flaw} {count}")).collect();
    Some(format!(
        "warning: nothing can be trained of {empty} of {complete} calls ({}): the upstream, or a router before it, does not send \
         what training needs",
        flaws.join(", ")
    ))
}

fn trials_table(trials: &[TrialOutcome]) -> Table {
    let header = ["task", "sample", "reward", "calls", "tokens in", "out", "branches", "seconds", "failure"];
    let mut table = table(&header, 1..8);
    let several = has_several_agents(trials);
    for trial in trials {
        let count = |of: fn(&rolltap_proxy::api::TrialStatus) -> u64| {
            trial.status.as_ref().map_or("-".to_owned(), |status| of(status).to_string())
        };
        table.add_row([
            work(trial, several),
            trial.sample_index.to_string(),
            rewards::cell(trial),
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

fn has_several_agents(trials: &[TrialOutcome]) -> bool {
    trials.windows(2).any(|pair| matches!(pair, [one, other] if one.agent != other.agent))
}

/// Names the task of a trial, and also its agent if the job has several agents.
fn work(trial: &TrialOutcome, several_agents: bool) -> String {
    let task = &trial.task_name;
    if several_agents { format!("{task} by {}", trial.agent.label()) } else { task.clone() }
}

/// The figures of one task. Only valid rewards count: a trial whose environment broke measures nothing of the model.
#[derive(Default)]
struct TaskFigures {
    trials: usize,
    failed: usize,
    rewards: Vec<f64>,
}

fn tasks_table(trials: &[TrialOutcome]) -> Table {
    let mut tasks: BTreeMap<String, TaskFigures> = BTreeMap::new();
    let several = has_several_agents(trials);
    for trial in trials {
        let figures = tasks.entry(work(trial, several)).or_default();
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
            task,
            trials.to_string(),
            rewards.len().to_string(),
            share(rewards.iter().sum()),
            share(passed as f64),
            failed.to_string(),
        ]);
    }
    table
}

/// Sums up the causes of branches over all trials.
fn causes_of(trials: &[TrialOutcome]) -> BTreeMap<BranchCause, Cost> {
    let mut causes: BTreeMap<BranchCause, Cost> = BTreeMap::new();
    for status in trials.iter().filter_map(|trial| trial.status.as_ref()) {
        for (&cause, &cost) in &status.branch_causes {
            causes.entry(cause).or_default().add(cost);
        }
    }
    causes
}

/// Returns a table of causes, or `None` if every trial is one branch from its first call to its last.
fn causes_table(causes: &BTreeMap<BranchCause, Cost>) -> Option<Table> {
    if causes.keys().all(|&cause| cause == BranchCause::FirstCall) {
        return None;
    }
    let mut table = table(&["branches started", "branches", "new prompt tokens", "would change it"], 1..3);
    for (cause, Cost { branches, tokens }) in causes {
        let remedy = remedy(*cause).unwrap_or_default().to_owned();
        table.add_row([cause.to_string(), branches.to_string(), tokens.to_string(), remedy]);
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

/// The most trials that the summary names for doubtful records of their agents. The job's log has the others.
const DOUBTFUL_TOLD: usize = 10;

/// Returns lines on the tokens that agents recorded: how many were used, and where they differ from the capture.
fn returned_lines(trials: &[TrialOutcome]) -> Vec<String> {
    let returned = |trial| -> Option<(&TrialOutcome, &Returned)> {
        let trial: &TrialOutcome = trial;
        Some((trial, trial.returned.as_ref()?))
    };
    let returned: Vec<_> = trials.iter().filter_map(returned).collect();
    let taken: Vec<_> = returned.iter().filter(|(_, returned)| returned.taken).collect();
    let sum = |of: fn(&Returned) -> usize| -> usize { taken.iter().map(|(_, returned)| of(returned)).sum() };
    let mut lines = Vec::new();
    if !taken.is_empty() {
        let (turns, trainable) = (sum(|returned| returned.turns), sum(|returned| returned.trainable));
        lines.push(format!(
            "tokens of {} trials are what their agents handed back, since nothing was captured: {turns} turns, \
             {trainable} can be trained on",
            taken.len()
        ));
    }
    let doubtful: Vec<_> = returned.iter().filter(|(_, returned)| returned.is_doubtful()).collect();
    for (trial, returned) in doubtful.iter().take(DOUBTFUL_TOLD) {
        lines.extend(returned.notes().into_iter().map(|note| format!("warning: {}: {note}", trial.name)));
    }
    if let Some(more @ 1..) = doubtful.len().checked_sub(DOUBTFUL_TOLD) {
        lines.push(format!("warning: {more} more trials whose agents handed back something doubtful"));
    }
    lines
}

pub(super) fn table(header: &[&str], right_aligned: std::ops::Range<usize>) -> Table {
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

/// Formats a number with at most three decimals and without trailing zeros.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    // A small negative number rounds to `-0.000`.
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_with_what_would_change_them() {
        let cost = |branches, tokens| Cost { branches, tokens };
        let mut causes = BTreeMap::from([(BranchCause::FirstCall, cost(3, 900))]);
        assert!(causes_table(&causes).is_none(), "one branch a trial needs no explanation");
        causes.insert(BranchCause::TemplateRewroteHistory, cost(5, 12_345));
        causes.insert(BranchCause::SubAgent, cost(1, 20));
        causes.insert(BranchCause::StopStringRemoved, cost(2, 7));
        let table = causes_table(&causes).unwrap().to_string();
        let row = |cause: &str| -> Vec<_> {
            let line = table.lines().find(|line| line.contains(cause)).unwrap();
            line.split(['│', '┆']).map(str::trim).filter(|cell| !cell.is_empty()).collect()
        };
        assert_eq!(row("template_rewrote"), ["template_rewrote_history", "5", "12345", "--history sampled"]);
        assert_eq!(row("stop_string"), ["stop_string_removed", "2", "7", "--history sampled"]);
        assert_eq!(row("sub_agent"), ["sub_agent", "1", "20"], "that is the agent's own doing");
    }

    #[test]
    fn numbers_are_short() {
        let written = [1.0, 0.5, 0.0, -0.0001, 2.0 / 3.0, 100.0].map(number);
        assert_eq!(written, ["1", "0.5", "0", "0", "0.667", "100"]);
    }
}

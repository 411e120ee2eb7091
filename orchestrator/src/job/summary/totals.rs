//! The figures of a job over its trials: per task, per set of tasks, per kind of failure, and over all.

use std::collections::BTreeMap;

use rolltap_proxy::api::{Cost, TrialStatus};
use rolltap_rollout::branch_cause::BranchCause;

use crate::common::words::{first_line, mean};
use crate::job::records::statistics::pass_at_k;
use crate::trial::TrialOutcome;

/// The name of the tasks that belong to no dataset.
const SINGLE_TASKS: &str = "single tasks";
/// The values of `k` whose pass@k is reported, and the largest one besides.
const REPORTED_KS: [usize; 3] = [2, 4, 8];

/// The figures of some trials. Only valid rewards count: a trial whose environment broke measures nothing of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) trials: usize,
    pub(super) failed: usize,
    pub(super) rewards: Vec<f64>,
}

impl Figures {
    fn add(&mut self, trial: &TrialOutcome) {
        self.trials += 1;
        self.failed += usize::from(trial.failure.is_some());
        self.rewards.extend(trial.reward.filter(|_| trial.reward_is_valid()));
    }

    /// Returns the mean of the rewards, or `None` if there are none.
    pub(super) fn mean_reward(&self) -> Option<f64> {
        mean(&self.rewards)
    }

    /// Returns the share of rewards of at least 1, which is a pass by Harbor's convention.
    pub(super) fn pass_rate(&self) -> Option<f64> {
        let passed = self.rewards.iter().filter(|reward| **reward >= 1.0).count();
        (!self.rewards.is_empty()).then(|| passed as f64 / self.rewards.len() as f64)
    }
}

/// The figures of one agent at one set of tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SetFigures {
    pub(super) figures: Figures,
    /// Harbor's estimates of pass@k, by `k`. A trial without a reward has not passed.
    pub(super) pass_at_k: BTreeMap<usize, f64>,
}

/// The trials that failed for one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FailureFigures {
    pub(super) trials: usize,
    /// The first of these trials, and the first line of its message.
    pub(super) example: String,
}

/// The figures of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) all: Figures,
    /// By task, and by agent if there are several.
    pub(super) tasks: BTreeMap<String, Figures>,
    /// By set of tasks, and by agent if there are several.
    pub(super) sets: BTreeMap<String, SetFigures>,
    /// By the name of the cause.
    pub(super) failures: BTreeMap<&'static str, FailureFigures>,
    pub(super) calls: u64,
    pub(super) prompt_tokens: u64,
    pub(super) sampled_tokens: u64,
    /// The causes of branches, each with its cost.
    pub(super) causes: BTreeMap<BranchCause, Cost>,
}

impl Totals {
    pub(super) fn of(trials: &[TrialOutcome]) -> Self {
        let mut totals = Self::default();
        let several = has_several_agents(trials);
        let mut sets: BTreeMap<String, Vec<&TrialOutcome>> = BTreeMap::new();
        for trial in trials {
            totals.all.add(trial);
            totals.tasks.entry(work(trial, &trial.task_name, several)).or_default().add(trial);
            let set = trial.source.as_deref().unwrap_or(SINGLE_TASKS);
            sets.entry(work(trial, set, several)).or_default().push(trial);
            totals.add_failure(trial);
            if let Some(status) = &trial.status {
                totals.add_status(status);
            }
        }
        totals.sets = sets.into_iter().map(|(set, trials)| (set, of_set(&trials))).collect();
        totals
    }

    fn add_failure(&mut self, trial: &TrialOutcome) {
        let Some(failure) = &trial.failure else { return };
        let example =
            || format!("{} in phase {}: {}", trial.name, failure.phase, first_line(&failure.message));
        let kind = self.failures.entry(failure.cause.name());
        kind.or_insert_with(|| FailureFigures { trials: 0, example: example() }).trials += 1;
    }

    fn add_status(&mut self, status: &TrialStatus) {
        self.calls += status.calls.total;
        self.prompt_tokens += status.prompt_tokens;
        self.sampled_tokens += status.completion_tokens;
        for (&cause, &cost) in &status.branch_causes {
            self.causes.entry(cause).or_default().add(cost);
        }
    }

    /// Returns the cost of all branches but the first of each trial. None of these would exist if each trial were one
    /// conversation that only grows.
    pub(super) fn further_branches(&self) -> Cost {
        let mut sum = Cost::default();
        let further = self.causes.iter().filter(|(cause, _)| **cause != BranchCause::FirstCall);
        further.for_each(|(_, cost)| sum.add(*cost));
        sum
    }
}

fn of_set(trials: &[&TrialOutcome]) -> SetFigures {
    let mut figures = Figures::default();
    trials.iter().for_each(|trial| figures.add(trial));
    let all = pass_at_k(trials);
    let largest = all.keys().next_back().copied();
    let is_reported = |k: &usize| REPORTED_KS.contains(k) || Some(*k) == largest;
    SetFigures { figures, pass_at_k: all.into_iter().filter(|(k, _)| is_reported(k)).collect() }
}

pub(super) fn has_several_agents(trials: &[TrialOutcome]) -> bool {
    trials.windows(2).any(|pair| matches!(pair, [one, other] if one.agent != other.agent))
}

/// Names a trial's task or set of tasks, and also its agent if the job has several agents.
pub(super) fn work(trial: &TrialOutcome, name: &str, several_agents: bool) -> String {
    if several_agents { format!("{name} by {}", trial.agent.label()) } else { name.to_owned() }
}

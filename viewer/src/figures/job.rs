//! The numbers of a job: rewards, failures, branch causes and pass@k, of each task and of all.

use std::collections::BTreeMap;

use rolltap_orchestrator::common::words::mean;
use rolltap_orchestrator::job::pass_at_k;

use crate::collection::{CauseCost, TrialEntry};

/// The numbers of some trials. Superseded attempts do not count.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TrialFigures {
    pub(crate) trials: usize,
    pub(crate) open: usize,
    pub(crate) superseded: usize,
    /// Trials with a reward.
    pub(crate) rewarded: usize,
    /// The mean of the rewards. `None` if there is none.
    pub(crate) mean: Option<f64>,
    pub(crate) calls: u64,
    pub(crate) sampled_tokens: u64,
    /// Failed trials by cause.
    pub(crate) failures: BTreeMap<String, usize>,
    pub(crate) suspicious: usize,
    pub(crate) causes: BTreeMap<String, CauseCost>,
    /// The estimated probability that one of k samples passes, by k. Empty if a reward is neither 0 nor 1.
    pub(crate) pass_at_k: BTreeMap<usize, f64>,
}

impl TrialFigures {
    pub(crate) fn of<'t>(trials: impl IntoIterator<Item = &'t TrialEntry>) -> Self {
        let mut figures = Self::default();
        let (mut rewards, mut counted) = (Vec::new(), Vec::new());
        for trial in trials {
            if trial.is_superseded {
                figures.superseded += 1;
                continue;
            }
            counted.push(trial);
            figures.trials += 1;
            figures.open += usize::from(trial.is_open);
            figures.calls += trial.calls.unwrap_or_default();
            figures.sampled_tokens += trial.sampled_tokens.unwrap_or_default();
            figures.suspicious += usize::from(!trial.suspicious().is_empty());
            rewards.extend(trial.reward());
            if let Some(cause) = trial.failure() {
                *figures.failures.entry(cause.to_owned()).or_default() += 1;
            }
            for (cause, cost) in &trial.causes {
                figures.causes.entry(cause.clone()).or_default().add(*cost);
            }
        }
        (figures.rewarded, figures.mean) = (rewards.len(), mean(&rewards));
        // A trial without a verdict has not ended, so it is no sample yet.
        let samples = counted.iter().filter(|trial| trial.reward.is_some());
        figures.pass_at_k = pass_at_k(samples.map(|trial| {
            let rewards =
                trial.reward.as_ref().map(|reward| &reward.rewards).filter(|rewards| !rewards.is_empty());
            (trial.task.as_str(), rewards)
        }));
        figures
    }
}

/// Returns the numbers of each task, by its name.
pub(crate) fn by_task(trials: &[TrialEntry]) -> BTreeMap<&str, TrialFigures> {
    let mut of_task: BTreeMap<&str, Vec<&TrialEntry>> = BTreeMap::new();
    for trial in trials {
        of_task.entry(&trial.task).or_default().push(trial);
    }
    of_task.into_iter().map(|(task, trials)| (task, TrialFigures::of(trials))).collect()
}

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
    /// Calls whose answer failed, was cancelled or was interrupted.
    pub(crate) incomplete_calls: u64,
    /// Trials that are a further attempt at their sample. Their earlier attempts are superseded.
    pub(crate) retried: usize,
    pub(crate) sampled_tokens: u64,
    /// The sampled tokens of sealed trials, divided by the time from the first opening to the last seal.
    pub(crate) tokens_per_second: Option<f64>,
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
            figures.retried += usize::from(trial.attempt > 0);
            figures.calls += trial.calls.unwrap_or_default();
            figures.incomplete_calls += trial.incomplete_calls.unwrap_or_default();
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
        figures.tokens_per_second = tokens_per_second(&counted);
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

/// Returns the rate over the sealed trials. `None` if no time is known.
fn tokens_per_second(trials: &[&TrialEntry]) -> Option<f64> {
    let sealed = || trials.iter().filter_map(|trial| Some((trial.opened_at?, trial.sealed_at?, trial)));
    let begin = sealed().map(|(opened, ..)| opened).min()?;
    let end = sealed().map(|(_, sealed, _)| sealed).max()?;
    let tokens: u64 = sealed().filter_map(|(.., trial)| trial.sampled_tokens).sum();
    let seconds = end.duration_since(begin).as_secs_f64();
    (seconds > 0.0).then(|| tokens as f64 / seconds)
}

/// Returns the numbers of each task, by its name.
pub(crate) fn by_task(trials: &[TrialEntry]) -> BTreeMap<&str, TrialFigures> {
    let mut of_task: BTreeMap<&str, Vec<&TrialEntry>> = BTreeMap::new();
    for trial in trials {
        of_task.entry(&trial.task).or_default().push(trial);
    }
    of_task.into_iter().map(|(task, trials)| (task, TrialFigures::of(trials))).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rolltap_testing::rollout_row;

    use super::*;

    fn trial(opened: i64, sealed: Option<i64>, tokens: u64) -> TrialEntry {
        let second = |second| Timestamp::from_second(second).unwrap();
        let facts = serde_json::from_value(rollout_row("one", "task", Some(1.0), 3)).unwrap();
        TrialEntry {
            opened_at: Some(second(opened)),
            sealed_at: sealed.map(second),
            sampled_tokens: Some(tokens),
            ..TrialEntry::of_facts(facts)
        }
    }

    #[test]
    fn tokens_per_second_count_trials_side_by_side_and_no_open_ones() {
        let trials = [trial(10, Some(20), 100), trial(12, Some(30), 300), trial(0, None, 7)];
        assert_eq!(TrialFigures::of(&trials).tokens_per_second, Some(20.0));
        assert_eq!(TrialFigures::of(&trials[2..]).tokens_per_second, None);
        let superseded = TrialEntry { is_superseded: true, ..trials[0].clone() };
        let retried = TrialEntry { attempt: 1, incomplete_calls: Some(2), ..trials[1].clone() };
        let figures = TrialFigures::of(&[superseded, retried]);
        assert_eq!((figures.superseded, figures.retried, figures.incomplete_calls), (1, 1, 2));
    }
}

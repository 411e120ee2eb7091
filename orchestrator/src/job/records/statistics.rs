//! The statistics of a job's trials as Harbor computes them: rewards, failures, metrics and pass@k of each agent on
//! each dataset.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::job;
use crate::job::config::Metric;
use crate::trial::JobAgent;
use crate::trial::TrialOutcome;

/// Harbor's name for tasks that belong to no dataset.
const NO_DATASET: &str = "adhoc";

/// Returns `evals`: an `AgentDatasetStats` for each pair of an agent with its model and a dataset. Only the last
/// attempt at each sample counts.
pub(super) fn evals(trials: &[TrialOutcome], metrics: &[Metric]) -> BTreeMap<String, Stats> {
    let mut by_key: BTreeMap<String, Vec<&TrialOutcome>> = BTreeMap::new();
    for trial in trials {
        by_key.entry(key(&trial.agent, trial.source.as_deref())).or_default().push(trial);
    }
    by_key.into_iter().map(|(key, trials)| (key, Stats::of(&trials, metrics))).collect()
}

/// Returns the trials that are suspected of cheating, by reason.
pub(in crate::job) fn suspicious(trials: &[TrialOutcome]) -> BTreeMap<String, Vec<String>> {
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for trial in trials {
        for reason in trial.suspicious.iter().flat_map(|found| found.reasons()) {
            by_reason.entry(reason).or_default().push(trial.name.to_string());
        }
    }
    by_reason
}

fn key(agent: &JobAgent, source: Option<&str>) -> String {
    let parts = [Some(agent.spec.name()), agent.model.as_deref(), Some(source.unwrap_or(NO_DATASET))];
    parts.into_iter().flatten().collect::<Vec<_>>().join("__")
}

/// Harbor's `AgentDatasetStats`.
#[derive(Serialize)]
pub(super) struct Stats {
    n_trials: usize,
    n_errors: usize,
    metrics: Vec<Value>,
    pass_at_k: BTreeMap<usize, f64>,
    reward_stats: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    exception_stats: BTreeMap<&'static str, Vec<String>>,
}

impl Stats {
    fn of(trials: &[&TrialOutcome], metrics: &[Metric]) -> Self {
        let mut reward_stats: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
        let mut exception_stats: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        for trial in trials {
            for (name, value) in &trial.rewards {
                let of_value = reward_stats.entry(name.clone()).or_default().entry(value.to_string());
                of_value.or_default().push(trial.name.to_string());
            }
            if let Some(failure) = trial.exception() {
                exception_stats.entry(failure.cause.name()).or_default().push(trial.name.to_string());
            }
        }
        let rewards: Vec<_> = trials.iter().map(|trial| rewards(trial)).collect();
        Self {
            n_trials: rewards.iter().flatten().count(),
            n_errors: trials.iter().filter(|trial| trial.exception().is_some()).count(),
            metrics: metrics.iter().map(|metric| computed(*metric, &rewards)).collect(),
            pass_at_k: pass_at_k(trials),
            reward_stats,
            exception_stats,
        }
    }
}

type Rewards = BTreeMap<String, f64>;

fn rewards(trial: &TrialOutcome) -> Option<&Rewards> {
    Some(&trial.rewards).filter(|rewards| !rewards.is_empty())
}

/// Computes a metric. With one kind of reward the key is the metric's name, otherwise the rewards' names. A missing
/// reward counts as 0, which is Harbor's rule for these figures. A rollout row never has 0 for a missing reward.
fn computed(metric: Metric, rewards: &[Option<&Rewards>]) -> Value {
    let names: BTreeSet<&String> = rewards.iter().flatten().flat_map(|rewards| rewards.keys()).collect();
    if names.len() <= 1 {
        let first = |rewards: &Option<&Rewards>| rewards.and_then(|rewards| rewards.values().next().copied());
        let values: Vec<f64> = rewards.iter().map(|rewards| first(rewards).unwrap_or(0.0)).collect();
        return json!({metric.name(): metric.of(&values)});
    }
    let of_name = |name: &String| {
        let value = |rewards: &Option<&Rewards>| rewards.and_then(|rewards| rewards.get(name).copied());
        metric.of(&rewards.iter().map(|rewards| value(rewards).unwrap_or(0.0)).collect::<Vec<_>>())
    };
    Value::Object(names.into_iter().map(|name| (name.clone(), json!(of_name(name)))).collect::<Map<_, _>>())
}

impl Metric {
    fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Mean => "mean",
        }
    }

    /// Returns `None` if there are no values.
    fn of(self, values: &[f64]) -> Option<f64> {
        let sum = values.iter().sum::<f64>();
        match self {
            _ if values.is_empty() => None,
            Self::Sum => Some(sum),
            Self::Min => values.iter().copied().reduce(f64::min),
            Self::Max => values.iter().copied().reduce(f64::max),
            Self::Mean => Some(sum / values.len() as f64),
        }
    }
}

/// Returns pass@k of these trials.
pub(in crate::job) fn pass_at_k(trials: &[&TrialOutcome]) -> BTreeMap<usize, f64> {
    job::pass_at_k(trials.iter().map(|trial| (trial.task_name.as_str(), rewards(trial))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_reward_counts_as_0_in_metrics() {
        let one = BTreeMap::from([("reward".to_owned(), 1.0)]);
        let rewards = [Some(&one), None];
        assert_eq!(computed(Metric::Mean, &rewards), json!({"mean": 0.5}));
        assert_eq!(computed(Metric::Min, &rewards), json!({"min": 0.0}));
        let two = BTreeMap::from([("reward".to_owned(), 0.5), ("style".to_owned(), 3.0)]);
        let rewards = [Some(&one), Some(&two), None];
        assert_eq!(computed(Metric::Max, &rewards), json!({"reward": 1.0, "style": 3.0}));
        assert_eq!(computed(Metric::Sum, &rewards), json!({"reward": 1.5, "style": 3.0}));
    }
}

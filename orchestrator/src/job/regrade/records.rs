//! The JSON files of a version.

use jiff::Timestamp;
use rolltap_rollout::ids::RewardVersion;
use serde_json::{Value, json};

use super::recorded::Recorded;
use super::report::{Outcome, RegradedTrial};
use super::tasks::Tasks;
use super::{RegradeError, RegradeSettings};
use crate::common::words::mean;
use crate::environment::EnvironmentKind;
use crate::job::resume::difference::{Difference, as_read, difference};
use crate::trial::records::VERSION;

/// Returns the settings of a version.
pub(super) fn config(
    version: &RewardVersion,
    settings: &RegradeSettings,
    environment: EnvironmentKind,
    tasks: &Tasks,
    trials: &[Recorded],
) -> Value {
    json!({
        "version": version,
        "rolltap": VERSION,
        "created_at": Timestamp::now(),
        "environment": environment.to_string(),
        "chosen_tasks": settings.tasks,
        "failed_only": settings.failed_only,
        "tasks": tasks.record(trials),
    })
}

/// Checks that an earlier run of the version had the same verifier and the same choice of trials.
pub(super) fn is_same(version: &RewardVersion, before: &Value, now: &Value) -> Result<(), RegradeError> {
    match difference(&comparable(before), &comparable(&as_read(now))) {
        None => Ok(()),
        Some(Difference { key, before, now }) => {
            Err(RegradeError::Differs { version: version.clone(), key, before, now })
        }
    }
}

/// Returns the settings without those that do not change results: equal tasks may be at another path.
fn comparable(config: &Value) -> Value {
    let mut config = config.clone();
    let Some(fields) = config.as_object_mut() else { return config };
    for key in ["version", "rolltap", "created_at"] {
        fields.remove(key);
    }
    for task in fields.get_mut("tasks").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(task) = task.as_object_mut() {
            task.remove("path");
        }
    }
    config
}

/// Returns the result of a version.
pub(super) fn result(
    version: &RewardVersion,
    started_at: Timestamp,
    finished_at: Option<Timestamp>,
    trials: &[RegradedTrial],
) -> Value {
    let count = |outcome| trials.iter().filter(|trial| trial.outcome == outcome).count();
    let all: Vec<_> = trials.iter().collect();
    let (up, down) = changes(&all);
    let (before, after) = means(&all);
    json!({
        "version": version,
        "started_at": started_at,
        "finished_at": finished_at,
        "stats": {
            "n_trials": trials.len(),
            "n_regraded": count(Outcome::Regraded),
            "n_unchanged": count(Outcome::Unchanged),
            "n_refused": count(Outcome::Refused),
            "n_failed": count(Outcome::Failed),
            "n_rewards_up": up,
            "n_rewards_down": down,
            "mean_before": before,
            "mean_after": after,
        },
        "trials": trials,
    })
}

/// Returns both rewards of each trial that has two valid ones.
fn pairs(trials: &[&RegradedTrial]) -> Vec<(f64, f64)> {
    let pair = |trial: &RegradedTrial| {
        let after = trial.after.as_ref().filter(|after| after.reward_valid)?;
        Some((trial.before.reward.filter(|_| trial.before.reward_valid)?, after.reward?))
    };
    trials.iter().copied().filter_map(pair).collect()
}

/// Returns the numbers of rewards that became higher and lower.
pub(super) fn changes(trials: &[&RegradedTrial]) -> (usize, usize) {
    let pairs = pairs(trials);
    let count = |is: fn(&(f64, f64)) -> bool| pairs.iter().filter(|pair| is(pair)).count();
    (count(|(before, after)| after > before), count(|(before, after)| after < before))
}

/// Returns the means of the valid rewards before and after.
pub(super) fn means(trials: &[&RegradedTrial]) -> (Option<f64>, Option<f64>) {
    let before =
        trials.iter().filter(|trial| trial.before.reward_valid).filter_map(|trial| trial.before.reward);
    let after = trials.iter().filter_map(|trial| trial.after.as_ref());
    let after = after.filter(|after| after.reward_valid).filter_map(|after| after.reward);
    (mean(&before.collect::<Vec<_>>()), mean(&after.collect::<Vec<_>>()))
}

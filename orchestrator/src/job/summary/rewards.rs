//! Rewards in a job's summary, and warnings about rewards that cannot be trained on as they are.

use std::collections::BTreeMap;

use crate::common::words::number;
use crate::trial::{TrialOutcome, in_words};

/// The most sets of names that get a warning of their own. A job's tasks rarely have more.
const SETS_LISTED: usize = 10;

/// Returns a trial's reward, or all its rewards with their names if it lacks one named `reward`.
pub(super) fn cell(trial: &TrialOutcome) -> String {
    match trial.reward {
        Some(reward) => number(reward),
        None if trial.rewards.is_empty() => "-".to_owned(),
        None => in_words(&trial.rewards, |value| number(*value)),
    }
}

/// Returns a warning for each set of reward names that makes no number to train on.
pub(super) fn warnings(trials: &[TrialOutcome]) -> Vec<String> {
    // The rule of the trials, as text, and their reward names.
    let mut sets: BTreeMap<(Option<String>, Vec<&str>), usize> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| trial.lacks_the_reward()) {
        let rule = trial.reward_rule.as_ref().map(ToString::to_string);
        *sets.entry((rule, trial.rewards.keys().map(String::as_str).collect())).or_default() += 1;
    }
    let more = sets.len().saturating_sub(SETS_LISTED);
    let shown = sets.iter().take(SETS_LISTED);
    let mut warnings: Vec<_> =
        shown.map(|((rule, names), count)| warning(rule.as_deref(), names, *count)).collect();
    if more > 0 {
        warnings.push(format!("warning: {more} more sets of rewards make no number to train on"));
    }
    warnings
}

fn warning(rule: Option<&str>, names: &[&str], count: usize) -> String {
    let (trials, have) = if count == 1 { ("trial", "has") } else { ("trials", "have") };
    match (names, rule) {
        ([], _) => format!(
            "warning: the tests of {count} {trials} left no number: nothing is trained on them, since no reward is no reward of 0"
        ),
        (_, Some(rule)) => format!(
            "warning: {count} {trials} {have} rewards {}, of which the rule \"{rule}\" makes no number: nothing is trained on \
             them",
            listed(names)
        ),
        ([first, ..], None) => format!(
            "warning: {count} {trials} {have} rewards {} and none named \"reward\": nothing is trained on them until one is \
             chosen, as by --reward {first} of `rolltap export`, or of `rolltap run` for the next job",
            listed(names)
        ),
    }
}

/// Joins names: `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_and_one_is_proposed() {
        assert_eq!(
            warning(None, &["a", "b", "c"], 1),
            "warning: 1 trial has rewards a, b and c and none named \"reward\": nothing is trained on them until one is \
             chosen, as by --reward a of `rolltap export`, or of `rolltap run` for the next job"
        );
        assert_eq!(
            warning(Some("speed"), &["a", "b"], 2),
            "warning: 2 trials have rewards a and b, of which the rule \"speed\" makes no number: nothing is trained on them"
        );
        assert!(warning(None, &[], 2).starts_with("warning: the tests of 2 trials left no number"));
    }
}

//! Descriptions of a trial's end for people.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::TrialOutcome;

impl TrialOutcome {
    /// Returns whether the tests gave a verdict without a reward: no number, or numbers of which none is chosen. Such a
    /// trial cannot be trained as it is.
    pub(crate) fn lacks_the_reward(&self) -> bool {
        let judged = || self.judged || self.steps.iter().any(|step| step.round.verdict.is_some());
        self.reward.is_none() && judged()
    }

    /// Describes the trial's reward, or why it has none.
    pub(crate) fn end_in_words(&self) -> String {
        let failure = self.failure.as_ref();
        match (self.reward, failure) {
            (Some(reward), None) => format!("ended with reward {reward}"),
            (Some(reward), Some(failure)) => format!("ended with reward {reward}: {failure}"),
            (None, Some(failure)) if self.rewards.is_empty() => {
                format!("ended without a reward: {failure}")
            }
            (None, _) if !self.rewards.is_empty() => {
                let why = match &self.reward_rule {
                    Some(rule) => format!("the rule \"{rule}\" makes no number of those of the tests"),
                    None => "the tests gave several, but no entry is named \"reward\"".to_owned(),
                };
                let rewards = in_words(&self.rewards, f64::to_string);
                let failure = failure.map(|failure| format!("; {failure}")).unwrap_or_default();
                format!("ended without a reward: {why}: {rewards}{failure}")
            }
            (None, _) if self.lacks_the_reward() => {
                "ended without a reward: the tests left no number".to_owned()
            }
            (None, _) => "ended without a reward: it was not judged".to_owned(),
        }
    }
}

/// Describes the rewards of tests in a line of a log.
pub(crate) fn verdict_in_words(rewards: &BTreeMap<String, f64>) -> String {
    match in_words(rewards, f64::to_string) {
        none if none.is_empty() => "the tests left no number".to_owned(),
        rewards => format!("the tests gave {rewards}"),
    }
}

/// Formats rewards for people: `correctness 1, speed 0.5`.
pub(crate) fn in_words<N: Display>(rewards: &BTreeMap<String, f64>, number: impl Fn(&f64) -> N) -> String {
    let said: Vec<_> = rewards.iter().map(|(name, value)| format!("{name} {}", number(value))).collect();
    said.join(", ")
}

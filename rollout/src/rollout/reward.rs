//! The reward of a trial, and the one rule that makes one number of several.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::RewardRule;
use crate::ids::RewardVersion;
use crate::row::RolloutRow;

/// The `failure_cause` of a trial that has no reward in the version that a reader chose.
const NO_REWARD_VERSION: &str = "no_reward_version";

/// The verifier's result for a trial, or the reason why there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reward {
    /// Every number that the verifier gave, by name.
    pub rewards: BTreeMap<String, f64>,
    /// The number to train on. `None` (never 0) if there is no reward.
    pub reward: Option<f64>,
    /// Whether the reward measures the agent.
    pub valid: bool,
    /// Why the trial failed.
    pub failure_cause: Option<String>,
    /// The version of a later verification. `None` for the reward of the trial itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<RewardVersion>,
    /// The reasons for which the trial is suspected of cheating. `None` if it was not examined. They never change the
    /// reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspicious: Option<Vec<String>>,
}

/// The rewards of a trial: its own, and those of later verifications. None of them ever changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrialRewards {
    /// The reward of the trial itself. `None` if it is not set.
    pub original: Option<Reward>,
    /// The rewards of later verifications, by version.
    pub versions: BTreeMap<RewardVersion, Reward>,
}

impl TrialRewards {
    /// Adds a reward, to its version if it has one.
    pub fn add(&mut self, reward: Reward) {
        match &reward.version {
            Some(version) => drop(self.versions.insert(version.clone(), reward)),
            None => self.original = Some(reward),
        }
    }

    /// Returns the reward in a version, or the original for `None`. A trial without a reward in the version has no
    /// number there, because a reward of another verifier would not be comparable. A version that did not examine the
    /// trial has the reasons of the original.
    pub fn of(&self, version: Option<&RewardVersion>) -> Reward {
        let Some(version) = version else { return self.original.clone().unwrap_or_default() };
        let mut reward = self.versions.get(version).cloned().unwrap_or_else(|| Reward {
            failure_cause: Some(NO_REWARD_VERSION.to_owned()),
            version: Some(version.clone()),
            ..Reward::default()
        });
        reward.suspicious = reward.suspicious.or_else(|| self.original.as_ref()?.suspicious.clone());
        reward
    }
}

impl Reward {
    /// The reward that these numbers of a verifier make. The number to train on is the entry `reward`, else the only
    /// entry, else `None`: a choice among several names would be a guess. The reward is valid if there is a number.
    pub fn from_named(rewards: BTreeMap<String, f64>) -> Self {
        Self::by_rule(rewards, None)
    }

    /// The reward that these numbers make by a user's rule. Without a rule, see [`Self::from_named`]. A sum that
    /// overflows makes no reward.
    pub fn by_rule(rewards: BTreeMap<String, f64>, rule: Option<&RewardRule>) -> Self {
        let only = || rewards.values().next().filter(|_| rewards.len() == 1);
        let reward = match rule {
            Some(rule) => rule.of(&rewards).filter(|reward| reward.is_finite()),
            None => rewards.get("reward").or_else(only).copied(),
        };
        Self { reward, valid: reward.is_some(), rewards, ..Self::default() }
    }

    /// Replaces the reward of a row by this one. Without an examination, the row keeps its reasons for suspicion.
    pub fn replace_in(&self, row: &mut RolloutRow) {
        row.reward = self.reward;
        row.rewards.clone_from(&self.rewards);
        row.reward_valid = self.valid;
        row.failure_cause.clone_from(&self.failure_cause);
        row.reward_version = self.version.as_ref().map(ToString::to_string);
        if self.suspicious.is_some() {
            row.suspicious.clone_from(&self.suspicious);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(rewards: &[(&str, f64)]) -> Reward {
        Reward::from_named(rewards.iter().map(|&(name, value)| (name.to_owned(), value)).collect())
    }

    #[test]
    fn the_number_is_the_one_named_reward_else_the_only_one() {
        assert_eq!(of(&[("a", 1.0), ("reward", 0.25)]).reward, Some(0.25));
        assert_eq!(of(&[("score", 0.5)]).reward, Some(0.5));
        assert_eq!(of(&[("a", 1.0), ("b", 0.0)]).reward, None);
        assert_eq!(of(&[]), Reward::default());
    }

    #[test]
    fn a_version_that_a_trial_lacks_has_no_number() {
        let version = RewardVersion::new("regrade-1").unwrap();
        let mut rewards = TrialRewards::default();
        rewards.add(of(&[("reward", 1.0)]));
        let missing = rewards.of(Some(&version));
        assert_eq!((missing.reward, missing.valid), (None, false));
        assert_eq!(missing.failure_cause.as_deref(), Some("no_reward_version"));
        rewards.add(Reward { version: Some(version.clone()), ..of(&[("reward", 0.0)]) });
        assert_eq!((rewards.of(None).reward, rewards.of(Some(&version)).reward), (Some(1.0), Some(0.0)));
    }

    #[test]
    fn a_rule_overrides_the_entry_named_reward() {
        let rewards = BTreeMap::from([("reward".to_owned(), 1.0), ("speed".to_owned(), 0.5)]);
        let by = |rule: &str| Reward::by_rule(rewards.clone(), Some(&rule.parse().unwrap()));
        assert_eq!(by("speed").reward, Some(0.5));
        assert_eq!(
            (by("style").reward, by("style").valid),
            (None, false),
            "a missing reward is not a reward of 0"
        );
        let huge = BTreeMap::from([("a".to_owned(), f64::MAX), ("b".to_owned(), f64::MAX)]);
        assert_eq!(Reward::by_rule(huge, Some(&RewardRule::Sum)).reward, None);
    }

    proptest! {
        #[test]
        fn the_number_is_one_of_those_given(rewards in prop::collection::btree_map("[a-c]|reward", -1.0..1.0_f64, 0..4)) {
            let made = Reward::from_named(rewards.clone());
            prop_assert!(made.reward.is_none_or(|reward| rewards.values().any(|&value| value == reward)));
            prop_assert_eq!(made.valid, made.reward.is_some());
            prop_assert_eq!(made.rewards, rewards);
        }
    }
}

//! The reward of a trial, and the one rule that makes one number of several.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
}

impl Reward {
    /// The reward that these numbers of a verifier make. The number to train on is the entry `reward`, else the only
    /// entry, else `None`: a choice among several names would be a guess. The reward is valid if there is a number.
    pub fn from_named(rewards: BTreeMap<String, f64>) -> Self {
        let only = || rewards.values().next().filter(|_| rewards.len() == 1);
        let reward = rewards.get("reward").or_else(only).copied();
        Self { reward, valid: reward.is_some(), failure_cause: None, rewards }
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

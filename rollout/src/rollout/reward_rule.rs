//! The rule that makes one number to train on of the numbers of a verifier.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A user's rule for the number to train on. Its text is `NAME`, `mean`, `sum` or `NAME=WEIGHT,NAME=WEIGHT…`.
///
/// An entry whose name is `mean` or `sum` is chosen by its weight, as in `mean=1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RewardRule {
    /// The entry with this name.
    Named(String),
    /// The mean of all entries.
    Mean,
    /// The sum of all entries.
    Sum,
    /// The sum of these entries, each multiplied by its weight.
    Weighted(BTreeMap<String, f64>),
}

/// Why a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRewardRule {
    /// The text, or a name in it, is empty.
    #[error("{EXPECTED}; a name is empty in {0:?}")]
    EmptyName(String),
    /// An entry of a list has no weight.
    #[error("{EXPECTED}; {0:?} has no weight")]
    NoWeight(String),
    /// A weight is not a finite number.
    #[error("{EXPECTED}; the weight of {name:?} is {weight:?}, which is not a finite number")]
    Weight {
        /// The name before the weight.
        name: String,
        /// The text in place of the weight.
        weight: String,
    },
    /// A name has two weights.
    #[error("{EXPECTED}; {0:?} occurs twice")]
    Twice(String),
}

const EXPECTED: &str = "expected the name of a reward, mean, sum, or NAME=WEIGHT,NAME=WEIGHT…";

impl RewardRule {
    /// Returns the number to train on, or `None` if the verifier did not give every number that the rule needs. The
    /// result is not finite if a sum overflows.
    pub fn of(&self, rewards: &BTreeMap<String, f64>) -> Option<f64> {
        let sum = || rewards.values().sum::<f64>();
        let is_filled = !rewards.is_empty();
        match self {
            Self::Named(name) => rewards.get(name).copied(),
            Self::Mean => is_filled.then(|| sum() / rewards.len() as f64),
            Self::Sum => is_filled.then(sum),
            Self::Weighted(weights) => {
                weights.iter().map(|(name, weight)| Some(rewards.get(name)? * weight)).sum()
            }
        }
    }

    /// Returns the number to train on by this rule in place of `own`, the recorded one, and whether it is valid. A reward
    /// that was invalid only for lack of a choice becomes valid.
    pub(crate) fn instead_of(
        &self,
        own: Option<f64>,
        rewards: &BTreeMap<String, f64>,
        is_valid: bool,
        has_failed: bool,
    ) -> (Option<f64>, bool) {
        let reward = self.of(rewards);
        let lacked_a_choice = own.is_none() && !has_failed;
        (reward, reward.is_some() && (is_valid || lacked_a_choice))
    }

    /// Returns the names that the rule needs. The mean and the sum need none in particular.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Named(name) => vec![name],
            Self::Weighted(weights) => weights.keys().map(String::as_str).collect(),
            Self::Mean | Self::Sum => Vec::new(),
        }
    }
}

impl FromStr for RewardRule {
    type Err = InvalidRewardRule;

    fn from_str(text: &str) -> Result<Self, InvalidRewardRule> {
        match text.trim() {
            "" => Err(InvalidRewardRule::EmptyName(text.to_owned())),
            "mean" => Ok(Self::Mean),
            "sum" => Ok(Self::Sum),
            list if list.contains(['=', ',']) => weighted(list).map(Self::Weighted),
            name => Ok(Self::Named(name.to_owned())),
        }
    }
}

fn weighted(list: &str) -> Result<BTreeMap<String, f64>, InvalidRewardRule> {
    let mut weights = BTreeMap::new();
    for entry in list.split(',') {
        // A name may contain `=`, but a weight cannot.
        let (name, weight) =
            entry.rsplit_once('=').ok_or_else(|| InvalidRewardRule::NoWeight(entry.trim().to_owned()))?;
        let (name, weight) = (name.trim(), weight.trim());
        if name.is_empty() {
            return Err(InvalidRewardRule::EmptyName(list.to_owned()));
        }
        let number = weight.parse().ok().filter(|number: &f64| number.is_finite());
        let wrong = || InvalidRewardRule::Weight { name: name.to_owned(), weight: weight.to_owned() };
        if weights.insert(name.to_owned(), number.ok_or_else(wrong)?).is_some() {
            return Err(InvalidRewardRule::Twice(name.to_owned()));
        }
    }
    Ok(weights)
}

impl fmt::Display for RewardRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Mean => f.write_str("mean"),
            Self::Sum => f.write_str("sum"),
            Self::Weighted(weights) => {
                for (at, (name, weight)) in weights.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(f, "{comma}{name}={weight}")?;
                }
                Ok(())
            }
        }
    }
}

impl TryFrom<String> for RewardRule {
    type Error = InvalidRewardRule;

    fn try_from(text: String) -> Result<Self, InvalidRewardRule> {
        text.parse()
    }
}

impl From<RewardRule> for String {
    fn from(rule: RewardRule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(text: &str) -> Result<RewardRule, String> {
        text.parse().map_err(|error: InvalidRewardRule| error.to_string())
    }

    fn number(text: &str, rewards: &[(&str, f64)]) -> Option<f64> {
        rule(text).unwrap().of(&rewards.iter().map(|&(name, value)| (name.to_owned(), value)).collect())
    }

    #[test]
    fn a_rule_makes_one_number() {
        let both = [("speed", 0.5), ("style", 0.25)];
        assert_eq!(number("speed", &both), Some(0.5));
        assert_eq!(number("mean", &both), Some(0.375));
        assert_eq!(number("sum", &both), Some(0.75));
        assert_eq!(number(" speed = 2 , style = -1 ", &both), Some(0.75));
        assert_eq!(number("mean=1", &[("mean", 0.1), ("sum", 9.0)]), Some(0.1), "an entry of that name");
    }

    #[test]
    fn a_missing_number_makes_no_reward() {
        assert_eq!(number("speed", &[("style", 1.0)]), None);
        assert_eq!(number("speed=1,style=1", &[("style", 1.0)]), None);
        assert_eq!(number("mean", &[]), None);
        assert_eq!(number("sum", &[]), None);
    }

    #[test]
    fn an_error_names_the_faulty_entry() {
        let expected = "expected the name of a reward, mean, sum, or NAME=WEIGHT,NAME=WEIGHT…";
        assert_eq!(rule("").unwrap_err(), format!("{expected}; a name is empty in \"\""));
        assert_eq!(rule("a,b").unwrap_err(), format!("{expected}; \"a\" has no weight"));
        assert_eq!(rule("a=1,=2").unwrap_err(), format!("{expected}; a name is empty in \"a=1,=2\""));
        assert_eq!(rule("a=1,a=2").unwrap_err(), format!("{expected}; \"a\" occurs twice"));
        let weight = format!("{expected}; the weight of \"a\" is \"x\", which is not a finite number");
        assert_eq!(rule("a=x").unwrap_err(), weight);
        assert!(rule("a=inf").is_err() && rule("a=NaN").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_rule_or_an_error(text in "\\PC{0,40}") {
            if let Ok(made) = rule(&text) {
                prop_assert_eq!(rule(&made.to_string()), Ok(made), "the text of a rule is that rule");
            }
        }

        #[test]
        fn weights_survive_their_text(weights in prop::collection::btree_map("[a-z][a-z ]{0,5}[a-z]", -1e300..1e300_f64, 1..4)) {
            let made = RewardRule::Weighted(weights);
            prop_assert_eq!(rule(&made.to_string()), Ok(made));
        }
    }
}

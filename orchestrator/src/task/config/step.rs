//! `[[steps]]`: several instructions worked at one after the other in one environment.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{AgentConfig, Artifact, Healthcheck, VerifierConfig};

/// One of `[[steps]]`. Its files lie in `steps/NAME/`.
#[derive(Clone, Debug, Deserialize)]
pub struct StepConfig {
    /// The name of its directory.
    pub name: String,
    /// Instead of the task's, key by key.
    #[serde(default)]
    pub agent: AgentConfig,
    /// Instead of the task's, by Harbor's rules: the timeout always, the rest where it says so.
    #[serde(default)]
    pub verifier: VerifierConfig,
    /// What the step must give for the next ones to be begun.
    #[serde(default)]
    pub min_reward: Option<MinReward>,
    /// After the step's set-up and before its agent.
    #[serde(default)]
    pub healthcheck: Option<Healthcheck>,
    /// Besides the task's.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
}

/// What a step must give for the next ones to be begun.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a number, or a table of numbers")]
pub enum MinReward {
    /// So much under the key `reward`.
    Reward(f64),
    /// So much under each of these keys.
    Each(BTreeMap<String, f64>),
}

/// How rewards of steps become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RewardStrategy {
    /// The mean of each key.
    #[default]
    Mean,
    /// Those of the last step.
    Final,
}

impl MinReward {
    /// What is missing from these rewards; none if they are enough. A key that is not there is never enough.
    pub fn unmet(&self, rewards: &BTreeMap<String, f64>) -> Option<String> {
        let below = |key: &str, least: f64| {
            let given = rewards.get(key).copied();
            let enough = given.is_some_and(|given| given >= least);
            (!enough).then(|| match given {
                Some(given) => format!("{key} = {given} is below min_reward = {least}"),
                None => format!("there is no {key}, and min_reward = {least}"),
            })
        };
        match self {
            Self::Reward(least) => below("reward", *least),
            Self::Each(all) => all.iter().find_map(|(key, least)| below(key, *least)),
        }
    }
}

impl StepConfig {
    /// Harbor's rule: a name that every system takes for a directory.
    pub(in crate::task) fn has_portable_name(&self) -> bool {
        let name = self.name.as_str();
        let stem = name.split('.').next().unwrap_or(name).trim_end_matches(' ').to_uppercase();
        let numbered = |prefix: &str| {
            let digit = stem.strip_prefix(prefix);
            digit.is_some_and(|digit| digit.len() <= 2 && digit.chars().count() == 1)
                && stem.ends_with(|c: char| "123456789¹²³".contains(c))
        };
        let device = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"].contains(&stem.as_str())
            || numbered("COM")
            || numbered("LPT");
        let forbidden = |c: char| "<>:\"/\\|?*".contains(c) || c.is_ascii_control();
        !(name.trim().is_empty()
            || name == "."
            || name == ".."
            || name.ends_with(['.', ' '])
            || name.contains(forbidden)
            || name.len() > 255
            || device)
    }
}

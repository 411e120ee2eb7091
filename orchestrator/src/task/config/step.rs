//! `[[steps]]`: several instructions that are worked on in order in one environment.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{AgentConfig, Artifact, Healthcheck, VerifierConfig};

/// An entry of `[[steps]]`. Its files are in `steps/NAME/`.
#[derive(Clone, Debug, Deserialize)]
pub struct StepConfig {
    /// The name of the step's directory.
    pub name: String,
    /// The agent's settings in this step, which replace the task's key by key.
    #[serde(default)]
    pub agent: AgentConfig,
    /// The verifier's settings in this step, by Harbor's rules. The timeout always replaces the task's. Other keys do
    /// if they are set, and `env` and `collect` add to the task's.
    #[serde(default)]
    pub verifier: VerifierConfig,
    /// The rewards that the step must reach for the next steps to start.
    #[serde(default)]
    pub min_reward: Option<MinReward>,
    /// The health check after the step's set-up and before its agent.
    #[serde(default)]
    pub healthcheck: Option<Healthcheck>,
    /// Artifacts in addition to the task's.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
}

/// The rewards that a step must reach for the next steps to start.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a number, or a table of numbers")]
pub enum MinReward {
    /// The least value of the key `reward`.
    Reward(f64),
    /// The least value of each of these keys.
    Each(BTreeMap<String, f64>),
}

/// How the rewards of the steps become one reward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RewardStrategy {
    /// The mean of each key.
    #[default]
    Mean,
    /// The rewards of the last step.
    Final,
}

impl MinReward {
    /// Returns a description of the first reward that is too low, or `None` if all suffice. A missing key never
    /// suffices.
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
    /// Whether the name is a valid directory name on every system, by Harbor's rule.
    pub(in crate::task) fn has_portable_name(&self) -> bool {
        let name = self.name.as_str();
        let stem = name.split('.').next().unwrap_or(name).trim_end_matches(' ').to_uppercase();
        // Windows reserves COM1 to COM9 and LPT1 to LPT9, also with a superscript digit of two bytes.
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

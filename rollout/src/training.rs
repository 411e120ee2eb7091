//! The choice of the calls to train, by their role.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::CallRole;

/// Whether the tokens of a call are trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Training {
    /// The tokens are trained if no other rule masks them.
    Train,
    /// The tokens are in the rows as sampled, and are not trained.
    Mask,
}

/// The treatment of the calls of each role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingPolicy {
    main: Training,
    sub_agent: Training,
    compaction: Training,
    title: Training,
    probe: Training,
}

impl Default for TrainingPolicy {
    /// Trains the calls that influence the reward: the main work, the sub-agents', and the summaries that later work
    /// depends on. No later work reads a title, and a probe's single token has no content. The reward would credit or
    /// blame them without a reason.
    fn default() -> Self {
        let (train, mask) = (Training::Train, Training::Mask);
        Self { main: train, sub_agent: train, compaction: train, title: mask, probe: mask }
    }
}

impl TrainingPolicy {
    /// Returns the treatment of calls with this role.
    pub fn of(&self, role: CallRole) -> Training {
        match role {
            CallRole::Main => self.main,
            CallRole::SubAgent => self.sub_agent,
            CallRole::Compaction => self.compaction,
            CallRole::Title => self.title,
            CallRole::Probe => self.probe,
        }
    }

    /// Whether tokens of calls with this role are trained.
    pub fn trains(&self, role: CallRole) -> bool {
        self.of(role) == Training::Train
    }

    /// Returns this policy with the treatment of the named roles replaced.
    #[must_use]
    pub fn with(mut self, named: &BTreeMap<CallRole, Training>) -> Self {
        for (&role, &training) in named {
            *match role {
                CallRole::Main => &mut self.main,
                CallRole::SubAgent => &mut self.sub_agent,
                CallRole::Compaction => &mut self.compaction,
                CallRole::Title => &mut self.title,
                CallRole::Probe => &mut self.probe,
            } = training;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_counts_and_the_rest_stays() {
        let named: BTreeMap<_, _> =
            serde_json::from_str(r#"{"title": "train", "sub_agent": "mask"}"#).unwrap();
        let policy = TrainingPolicy::default().with(&named);
        let trained: Vec<_> = CallRole::ALL.into_iter().filter(|&role| policy.trains(role)).collect();
        assert_eq!(trained, [CallRole::Main, CallRole::Compaction, CallRole::Title]);
        let kept: TrainingPolicy = serde_json::from_value(serde_json::to_value(policy).unwrap()).unwrap();
        assert_eq!(kept, policy);
    }

    #[test]
    fn a_trial_that_was_kept_before_roles_were_has_the_default() {
        assert_eq!(serde_json::from_str::<TrainingPolicy>("{}").unwrap(), TrainingPolicy::default());
    }
}

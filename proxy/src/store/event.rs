//! What the store keeps: the events from which trials can be told again.

use std::sync::Arc;

use jiff::Timestamp;
use rolltap_rollout::call::Call;
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::rollout::{Reward, TrialFacts};
use serde::{Deserialize, Serialize};

use crate::api::Limits;
use crate::history::History;
use crate::identity::KeyHash;
use crate::model_aliases::ModelAliases;

/// What a trial's story is told from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// A trial may make calls from now on.
    Opened(Box<Opened>),
    /// A call ended.
    Call(Arc<Call>),
    /// A batch of prompts ended, each a call of its own.
    Batch(Vec<Arc<Call>>),
    /// A trial makes no further call.
    Sealed { trial_id: TrialId, at: Timestamp },
    /// Other weights sample from now on.
    Policy(PolicyChange),
    /// A trial's reward came.
    Rewarded { trial_id: TrialId, reward: Reward },
}

/// The policy version that holds from now on, and its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PolicyChange {
    pub(crate) version: i32,
    pub(crate) label: String,
    /// The trainer said so, rather than a replica.
    pub(crate) is_set: bool,
    pub(crate) at: Timestamp,
}

/// What a trial is opened with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub(crate) facts: TrialFacts,
    pub(crate) key: KeyHash,
    pub(crate) sampling: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    pub(crate) seed: Option<i64>,
    #[serde(default)]
    pub(crate) model_aliases: ModelAliases,
    #[serde(default)]
    pub(crate) history: History,
    pub(crate) limits: Limits,
    pub(crate) metadata: serde_json::Map<String, serde_json::Value>,
    pub(crate) at: Timestamp,
}

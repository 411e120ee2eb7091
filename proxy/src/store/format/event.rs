//! What the store keeps: the events from which trials can be told again.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use rolltap_rollout::call::{Call, CallStatus};
use rolltap_rollout::ids::{CallId, GroupId, TrialId};
use rolltap_rollout::rollout::{Reward, TrialFacts};
use serde::{Deserialize, Serialize};

use crate::api::{ClosingCause, Limits};
use crate::common::history::History;
use crate::common::model_aliases::ModelAliases;
use crate::common::seconds::Seconds;
use crate::common::trial_key::KeyHash;
use crate::store::{StoredConversation, Summary};

use crate::store::read::index::At;

/// What a trial's story is told from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// A trial may make calls from now on.
    Opened(Box<Opened>),
    /// The opening before it came to nothing: the client was told that the trial is not there.
    Withdrawn { trial_id: TrialId },
    /// A call is about to go upstream. It is written so, and those of the next two kinds, not in JSON.
    #[serde(skip)]
    Intent { trial_id: TrialId, call_id: CallId, at: Timestamp },
    /// A call ended.
    #[serde(skip)]
    Call(CallEntry),
    /// A batch of prompts ended, each a call of its own.
    #[serde(skip)]
    Batch(Vec<CallEntry>),
    /// The agent of a call that is recorded as complete got an error instead of the answer.
    Undelivered { trial_id: TrialId, call_id: CallId },
    /// These trials' retention is over: what is left of them means nothing any more.
    Forgotten {
        trials: Vec<TrialId>,
        /// Every change of the policy version so far, some of which stood in a segment that is gone.
        policy: Vec<PolicyChange>,
        /// The newest number of the feed.
        sequence: u64,
        /// The newest number that a forgotten trial had, now or earlier; 0 where none was complete.
        #[serde(default)]
        through: u64,
    },
    /// Nothing: what was handed over before it is written once it is.
    #[serde(skip)]
    Flush,
    /// Nothing: a trial's calls are in memory no more. What was handed over before it is written once it is.
    #[serde(skip)]
    Asleep { trial_id: TrialId },
    /// Nothing: a trial's latest calls were read again, and its next ones build on them.
    #[serde(skip)]
    Woken { trial_id: TrialId, latest: Vec<ReadCall> },
    /// A trial makes no further call.
    Sealed { trial_id: TrialId, at: Timestamp },
    /// How a sealed trial went, so that nobody has to read its calls to say so.
    Summed { trial_id: TrialId, summary: Summary },
    /// Other weights sample from now on.
    Policy(PolicyChange),
    /// A trial's reward came.
    Rewarded { trial_id: TrialId, reward: Reward },
    /// A trial is sealed and its reward is known, or known not to come.
    Completed {
        trial_id: TrialId,
        #[serde(flatten)]
        completion: Completion,
    },
    /// A group takes no further trial.
    GroupClosed(GroupClosed),
}

/// When a trial was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Completion {
    /// Larger than that of every completion and closing before it.
    pub(crate) sequence: u64,
    pub(crate) at: Timestamp,
}

/// When and why a group closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupClosed {
    pub(crate) group_id: GroupId,
    /// Larger than that of every completion and closing before it.
    pub(crate) sequence: u64,
    pub(crate) cause: ClosingCause,
    pub(crate) at: Timestamp,
}

impl Event {
    /// The trial that it is about, if it is about one.
    pub(crate) fn trial_id(&self) -> Option<&TrialId> {
        match self {
            Self::Opened(opened) => Some(&opened.facts.trial_id),
            Self::Withdrawn { trial_id }
            | Self::Intent { trial_id, .. }
            | Self::Undelivered { trial_id, .. }
            | Self::Sealed { trial_id, .. }
            | Self::Summed { trial_id, .. }
            | Self::Rewarded { trial_id, .. }
            | Self::Completed { trial_id, .. }
            | Self::Asleep { trial_id }
            | Self::Woken { trial_id, .. } => Some(trial_id),
            Self::Call(kept) => Some(&kept.call.trial_id),
            Self::Batch(calls) => calls.first().map(|kept| &kept.call.trial_id),
            Self::Policy(_) | Self::GroupClosed(_) | Self::Forgotten { .. } | Self::Flush => None,
        }
    }

    /// What makes up for this event where its waiter gets an error before it is written: the client of an opening has
    /// no trial, the agent of a call has no answer.
    pub(crate) fn retractions(&self) -> Vec<Self> {
        match self {
            Self::Opened(opened) => vec![Self::Withdrawn { trial_id: opened.facts.trial_id.clone() }],
            Self::Call(kept) => kept.retraction().into_iter().collect(),
            Self::Batch(calls) => calls.iter().filter_map(CallEntry::retraction).collect(),
            _ => Vec::new(),
        }
    }
}

/// A call, and the conversation that it belongs to, if somebody looked at it.
#[derive(Clone, Debug)]
pub(crate) struct CallEntry {
    pub(crate) call: Arc<Call>,
    pub(crate) told: Option<Arc<StoredConversation>>,
}

impl CallEntry {
    /// Makes the call a failed one where its agent got an error instead of the answer.
    pub(crate) fn retract_if_in(&mut self, undelivered: &HashSet<CallId>) {
        if undelivered.contains(&self.call.call_id) {
            Arc::make_mut(&mut self.call).is_undelivered();
        }
    }

    /// None where the call did not complete, so that no reader takes its answer for delivered.
    fn retraction(&self) -> Option<Event> {
        let Call { trial_id, call_id, status, .. } = &*self.call;
        (*status == CallStatus::Complete)
            .then(|| Event::Undelivered { trial_id: trial_id.clone(), call_id: call_id.clone() })
    }
}

/// A call that was read, where it lies, and what its record begins with.
#[derive(Clone, Debug)]
pub(crate) struct ReadCall {
    pub(crate) at: At,
    pub(crate) kept: CallEntry,
    pub(crate) small: Arc<[u8]>,
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
    #[serde(default)]
    pub(crate) reward_deadline: Option<Seconds>,
    #[serde(default)]
    pub(crate) group_deadline: Option<Seconds>,
    pub(crate) metadata: serde_json::Map<String, serde_json::Value>,
    pub(crate) at: Timestamp,
}

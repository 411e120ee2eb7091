//! The events of the store, from which recovery rebuilds trials.

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
use crate::store::format::note::{CallNote, Pause};
use crate::store::read::index::At;
use crate::store::{StoredConversation, Summary};

/// A change of a trial, a group or the policy version.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// A trial was opened and may make calls.
    Opened(Box<Opened>),
    /// Undoes the opening before it: the client got an error, so the trial does not exist.
    Withdrawn { trial_id: TrialId },
    /// A call is about to go upstream. The records of this kind and of the next two are not JSON.
    #[serde(skip)]
    Intent { trial_id: TrialId, call_id: CallId, at: Timestamp },
    /// A call ended.
    #[serde(skip)]
    Call(CallEntry),
    /// A batch of prompts ended. Each prompt is a call of its own.
    #[serde(skip)]
    Batch(Vec<CallEntry>),
    /// The agent of a call that is recorded as complete got an error instead of the answer.
    Undelivered { trial_id: TrialId, call_id: CallId },
    /// The retention of these trials is over. Their remaining records have no meaning.
    Forgotten {
        trials: Vec<TrialId>,
        /// Every change of the policy version so far, including those in removed segments.
        policy: Vec<PolicyChange>,
        /// The highest feed number so far.
        sequence: u64,
        /// The highest feed number of a forgotten trial, now or earlier. 0 if no such trial was complete.
        #[serde(default)]
        through: u64,
    },
    /// Writes no record. It is acknowledged once all events before it are written.
    #[serde(skip)]
    Flush,
    /// Writes no record. The calls of a trial were evicted from memory. It is acknowledged once all events before it
    /// are written.
    #[serde(skip)]
    Evicted { trial_id: TrialId },
    /// Writes no record. A trial's latest calls were read again, and its next records build on them.
    #[serde(skip)]
    Reloaded { trial_id: TrialId, latest: Vec<ReadCall> },
    /// A trial was sealed and makes no further call.
    Sealed { trial_id: TrialId, at: Timestamp },
    /// The summary of a sealed trial, so that its status needs no read of its calls.
    Summed { trial_id: TrialId, summary: Summary },
    /// The policy version changed: other weights sample from now on.
    Policy(PolicyChange),
    /// The reward of a trial was set.
    Rewarded { trial_id: TrialId, reward: Reward },
    /// A complete trial got the reward of a later verification, which has a version.
    Regraded { trial_id: TrialId, reward: Reward },
    /// A trial is complete: it is sealed, and its reward is set or will not come.
    Completed {
        trial_id: TrialId,
        #[serde(flatten)]
        completion: Completion,
    },
    /// A group accepts no further trial.
    GroupClosed(GroupClosed),
    /// The trainer began or ended a pause.
    Paused(Pause),
    /// Something was observed about a recorded call. No event of this kind is acknowledged to anybody, and none is
    /// written for a trial that the store does not know.
    Noted {
        trial_id: TrialId,
        #[serde(flatten)]
        note: CallNote,
    },
}

/// When a trial became complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Completion {
    /// Higher than the number of every earlier completion and closing.
    pub(crate) sequence: u64,
    pub(crate) at: Timestamp,
}

/// When and why a group closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupClosed {
    pub(crate) group_id: GroupId,
    /// Higher than the number of every earlier completion and closing.
    pub(crate) sequence: u64,
    pub(crate) cause: ClosingCause,
    pub(crate) at: Timestamp,
}

impl Event {
    /// Returns the trial of the event, or `None` if it concerns no single trial.
    pub(crate) fn trial_id(&self) -> Option<&TrialId> {
        match self {
            Self::Opened(opened) => Some(&opened.facts.trial_id),
            Self::Withdrawn { trial_id }
            | Self::Intent { trial_id, .. }
            | Self::Undelivered { trial_id, .. }
            | Self::Sealed { trial_id, .. }
            | Self::Summed { trial_id, .. }
            | Self::Rewarded { trial_id, .. }
            | Self::Regraded { trial_id, .. }
            | Self::Completed { trial_id, .. }
            | Self::Noted { trial_id, .. }
            | Self::Evicted { trial_id }
            | Self::Reloaded { trial_id, .. } => Some(trial_id),
            Self::Call(kept) => Some(&kept.call.trial_id),
            Self::Batch(calls) => calls.first().map(|kept| &kept.call.trial_id),
            Self::Policy(_)
            | Self::Paused(_)
            | Self::GroupClosed(_)
            | Self::Forgotten { .. }
            | Self::Flush => None,
        }
    }

    /// Returns the events that undo this one if its waiter gets an error before it is written. The client of an opening
    /// then has no trial, and the agent of a call has no answer.
    pub(crate) fn retractions(&self) -> Vec<Self> {
        match self {
            Self::Opened(opened) => vec![Self::Withdrawn { trial_id: opened.facts.trial_id.clone() }],
            Self::Call(kept) => kept.retraction().into_iter().collect(),
            Self::Batch(calls) => calls.iter().filter_map(CallEntry::retraction).collect(),
            // Other events take effect even if their client gets an error. The client may repeat its request.
            _ => Vec::new(),
        }
    }
}

/// A call, and its conversation if it has one.
#[derive(Clone, Debug)]
pub(crate) struct CallEntry {
    pub(crate) call: Arc<Call>,
    pub(crate) told: Option<Arc<StoredConversation>>,
}

impl CallEntry {
    /// Marks the call as failed if its agent got an error instead of the answer.
    pub(crate) fn retract_if_in(&mut self, undelivered: &HashSet<CallId>) {
        if undelivered.contains(&self.call.call_id) {
            Arc::make_mut(&mut self.call).is_undelivered();
        }
    }

    /// Returns the event that marks the answer as undelivered. `None` if the call is not complete, because no reader
    /// takes the answer of such a call as delivered.
    fn retraction(&self) -> Option<Event> {
        let Call { trial_id, call_id, status, .. } = &*self.call;
        // Other statuses already show that the agent got no whole answer.
        (*status == CallStatus::Complete)
            .then(|| Event::Undelivered { trial_id: trial_id.clone(), call_id: call_id.clone() })
    }
}

/// A call that was read from disk, its position, and the JSON of its record.
#[derive(Clone, Debug)]
pub(crate) struct ReadCall {
    pub(crate) at: At,
    pub(crate) kept: CallEntry,
    pub(crate) small: Arc<[u8]>,
}

/// A policy version that holds from now on, and its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyChange {
    /// The ordinal of the version.
    pub version: i32,
    /// The name that the trainer or the replica gives to the version.
    pub label: String,
    /// Whether the trainer set the version. Otherwise a replica reported it.
    pub is_set: bool,
    /// When the proxy learned of the change.
    pub at: Timestamp,
}

/// The data with which a trial is opened.
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
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) hold_group: bool,
    pub(crate) metadata: serde_json::Map<String, serde_json::Value>,
    pub(crate) at: Timestamp,
    /// The span of the runner that opened the trial, as it named it (W3C Trace Context).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) traceparent: Option<String>,
}

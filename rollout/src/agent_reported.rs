//! Converts the tokens that an agent recorded itself into calls of its trial.
//!
//! Two formats are supported: Harbor's rollout details ([`rollout_details`], as of `harbor` 0.25.0) and trajectories of
//! the Agent Trajectory Interchange Format ([`trajectory`], ATIF-v1.0 to v1.8). Both become [`Segment`]s of turns.
//! [`calls`] turns these into calls as a capture would have recorded them, marked as [`Dialect::Returned`]. The forest,
//! the rows and the checks treat them like captured calls.
//!
//! Nothing is invented. A turn with a defect stays in the record with its [`Flaw`]s and is not trained. Such defects
//! are missing prompt ids, missing logprobs, lists of different lengths, and numbers that are not ids. If the lists of
//! turns differ in length, it is unknown which entry belongs to which turn. A missing prompt is not assembled from
//! earlier turns, because the template's text between these is unknown. The upstream's own report is unknown too: there
//! is no finish reason and no temperature, and the policy version is 0.
//!
//! [`Dialect::Returned`]: crate::call::Dialect::Returned
//! [`Flaw`]: crate::call::Flaw

mod atif;
mod compare;
mod details;
mod turn;

use jiff::Timestamp;

pub use atif::{Document, trajectory};
pub use compare::{Comparison, Difference, TurnList, compare};
pub use details::rollout_details;
pub use turn::{ReportedTurn, Segment};

use crate::branch_cause::BranchCause;
use crate::call::{Call, CallRole, CallStatus, Dialect};
use crate::continuation::Continuation;
use crate::ids::{CallId, TrialId};

/// Why an agent's record is unreadable.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The record is not JSON, or not in the expected format.
    #[error("not of the form expected: {0}")]
    Form(#[from] serde_json::Error),
    /// The schema version of the trajectory is unknown to this build.
    #[error("schema_version is {0:?}, not one of ATIF-v1.0 to ATIF-v1.8")]
    Version(String),
}

/// The number of characters of the trial's name in the names of its calls. A name has at most 128 characters in total.
const OF_TRIAL_NAME: usize = 100;

/// Returns the turns as calls of this trial, in the order of the segments: the main agent's first, then the others'.
/// The same turns give the same calls with the same names. Not every agent records the time of a turn, so all calls
/// have the time `at`, when the agent's work ended. Only their names give their order.
pub fn calls(trial_id: &TrialId, at: Timestamp, segments: impl IntoIterator<Item = Segment>) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for Segment { role, turns } in segments {
        for (index, turn) in turns.into_iter().enumerate() {
            // The name is always valid, because `OF_TRIAL_NAME` bounds its length.
            let Some(call_id) = name(trial_id, calls.len()) else { continue };
            // Equal times hide where a sub-agent starts, so its first call is marked.
            let begins_another = index == 0 && role == CallRole::SubAgent;
            let call = Call {
                dialect: Dialect::Returned,
                status: CallStatus::Complete,
                role,
                continuation: begins_another.then_some(Continuation::Fresh { cause: BranchCause::SubAgent }),
                ..Call::begun(call_id, trial_id.clone(), 0, at)
            };
            calls.push(turn.told_in(call));
        }
    }
    calls
}

/// Returns a name that no captured call and no other trial's call has, in the order of the turns. It uses the end of
/// the trial's name, because names of trials differ there.
fn name(trial_id: &TrialId, turn: usize) -> Option<CallId> {
    let trial = trial_id.as_str();
    let tail = trial.get(trial.len().saturating_sub(OF_TRIAL_NAME)..).unwrap_or(trial);
    CallId::new(format!("agent.{tail}.{turn:08}")).ok()
}

#[cfg(test)]
mod tests;

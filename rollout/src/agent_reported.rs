//! Tokens that an agent kept itself and hands back after its work, as calls of its trial.
//!
//! Two shapes are read: Harbor's rollout details ([`rollout_details`], as of `harbor` 0.25.0) and trajectories of the
//! Agent Trajectory Interchange Format ([`trajectory`], ATIF-v1.0 to v1.8). Both come down to [`Segment`]s of turns, and
//! [`calls`] makes of those what a capture of the same turns would be, marked as [`Dialect::Returned`]. From there on all
//! is as with captured calls: the same forest, the same rows, the same checks.
//!
//! Nothing is made up. A turn that lacks something is kept with its [`Flaw`]s and trains nothing: without prompt ids,
//! without logprobs, with lists of different lengths, with a number that is no id. Where lists of turns have different
//! lengths nobody can tell which entry belongs to which. A prompt that is not there is not pieced together from earlier
//! turns: what the template put between them is not known. What upstream would say is not known either, so there is no
//! finish reason, no temperature, and the policy version is 0.
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

/// Why nothing can be read of what an agent handed back.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// No JSON, or not of the form.
    #[error("not of the form expected: {0}")]
    Form(#[from] serde_json::Error),
    /// A trajectory of a version that nobody knew when this was written.
    #[error("schema_version is {0:?}, not one of ATIF-v1.0 to ATIF-v1.8")]
    Version(String),
}

/// How many characters of a trial's name stand in the names of its calls: so many that the whole is a name.
const OF_TRIAL_NAME: usize = 100;

/// The turns as calls of this trial, in the order of the segments: the main agent's first, then the others'. The same
/// turns give the same calls with the same names. No turn has a time that all agents tell, so all are of the time at which
/// the agent's work was over, and only their names tell their order.
pub fn calls(trial_id: &TrialId, at: Timestamp, segments: impl IntoIterator<Item = Segment>) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for Segment { role, turns } in segments {
        for (index, turn) in turns.into_iter().enumerate() {
            let Some(call_id) = name(trial_id, calls.len()) else { continue };
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

/// A name that no captured call has, in the order of the turns, and unlike those of other trials: what tells trials apart
/// stands at the end of their names.
fn name(trial_id: &TrialId, turn: usize) -> Option<CallId> {
    let trial = trial_id.as_str();
    let tail = trial.get(trial.len().saturating_sub(OF_TRIAL_NAME)..).unwrap_or(trial);
    CallId::new(format!("agent.{tail}.{turn:08}")).ok()
}

#[cfg(test)]
mod tests;

//! A queue of trials for workers on many hosts.
//!
//! The coordinator of a job [offers](WorkQueue::offer) trials. A worker takes one from the queue, [claims](Offer::claim) it,
//! and removes it from the queue. From then on the entry of the trial in a key-value bucket has its state. Each change of a
//! state names the revision that it replaces, so that of two contradicting changes only one takes effect: either the worker
//! ends the trial, or the coordinator gives it up ([`JobMonitor`]).
//!
//! ```text
//! stream rolltap-NAME-queue, subject rolltap.NAME.queue.KIND     trials that no worker has claimed
//! bucket rolltap-NAME-work,  key     trial.JOB.TRIAL             the state of a trial
//!                            key     worker.ID                   a heartbeat
//! ```
//!
//! This module knows no tasks. An offer is a JSON document whose meaning is that of the coordinator and the worker.

mod claim;
mod key;
mod monitor;
mod queue;
mod seen;
mod state;
mod worker;

pub use claim::{Claim, ClaimState, Offer, Offers, RequestedOffers};
pub use key::TrialKey;
pub use monitor::{JobMonitor, TrialWatch};
pub use queue::{InvalidWorkKind, WorkError, WorkKind, WorkQueue};
pub use state::TrialState;
pub use worker::{Heartbeat, WorkerId, WorkerRecord};

//! Which calls a trial admits.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rolltap_rollout::call::Dialect;

use crate::api::Limits;
use crate::common::redaction::Redaction;
use crate::store::CallSlots;
use crate::trial::TrialState;
use crate::trial::disconnect::Gateway;
use crate::trial::observer::CallObserver;
use crate::trial::retry::Fingerprint;

/// A call that asks to be admitted.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Places in the store's queue for the call's intent and its record.
    pub(crate) slots: CallSlots,
    pub(crate) dialect: Dialect,
    /// When the request's head arrived.
    pub(crate) started_at: Timestamp,
    /// Identifies a marked retry of this call. `None` if its client does not mark retries.
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) redaction: Arc<Redaction>,
    /// The gateway that forwarded the request, or `None` if there seems to be none.
    pub(crate) gateway: Option<Gateway>,
    pub(crate) observer: CallObserver,
}

/// The reason why a trial makes no further call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallRefusal {
    #[error("this trial is sealed: its agent's time is over")]
    Sealed,
    #[error("this trial has made all of the {0} calls that its limits allow")]
    TooManyCalls(u64),
    #[error("this trial has sampled all of the {0} tokens that its limits allow")]
    TooManyTokens(u64),
    #[error("this trial has {0} calls under way, as many as its limits allow at once; wait for one to end")]
    TooManyInFlight(u64),
    #[error("this trial has made the {max} calls per minute that its limits allow; the next one may come in {} s", wait.as_secs())]
    TooManyPerMinute {
        max: NonZeroU32,
        /// The time until the next call, in whole seconds.
        wait: Duration,
    },
    #[error("the request body is larger than the {0} bytes that this trial's limits allow")]
    BodyTooLarge(u64),
}

impl TrialState {
    /// Checks the seal and the limits of a trial for one more call, and counts the call for its rate.
    pub(super) fn may_call(&mut self, limits: &Limits) -> Result<(), CallRefusal> {
        let reached = |limit: Option<u64>, used: u64| limit.filter(|&limit| used >= limit);
        if self.sealed_at.is_some() {
            return Err(CallRefusal::Sealed);
        }
        if let Some(max) = reached(limits.max_calls, self.admitted) {
            return Err(CallRefusal::TooManyCalls(max));
        }
        if let Some(max) = reached(limits.max_completion_tokens, self.completion_tokens) {
            return Err(CallRefusal::TooManyTokens(max));
        }
        if let Some(max) = reached(limits.max_calls_in_flight, (self.in_flight.len() + self.counts) as u64) {
            return Err(CallRefusal::TooManyInFlight(max));
        }
        // The rate is last, so that it counts no call that another limit refuses.
        limits.max_calls_per_minute.map_or(Ok(()), |max| self.may_call_now(max))
    }

    fn may_call_now(&mut self, max: NonZeroU32) -> Result<(), CallRefusal> {
        let now = Instant::now();
        let wait = self.rate.wait(max, now);
        if wait.is_zero() {
            self.rate.count(max, now);
            return Ok(());
        }
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Err(CallRefusal::TooManyPerMinute { max, wait: Duration::from_secs(seconds) })
    }
}

//! Admission by cache residency: a trial opens where its conversation fits into the KV cache beside those that are open.
//!
//! A KV cache that holds too many conversations loses each one before its next turn, and the server computes it again. The
//! proxy knows the length of each conversation and its server, so it can prevent that: [`ledger`] forecasts what the open
//! trials need ([`forecast`], from the [`lengths`] of those that ended) and compares it with the size of the cache
//! ([`report`]), corrected by the hits that it gives ([`correction`]).

mod correction;
mod forecast;
pub(super) mod ledger;
mod lengths;
pub(super) mod report;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rolltap_rollout::call::Call;
use rolltap_rollout::continuation::Continuation;
use rolltap_rollout::ids::TrialId;
use tokio::sync::Notify;

use self::ledger::{CacheLedger, EndedCall};
use super::Pool;

/// The ledger of a pool, and its news.
#[derive(Debug, Default)]
pub(super) struct CacheAdmission {
    ledger: Mutex<CacheLedger>,
    /// A report came, or a trial freed its place.
    changed: Notify,
}

impl CacheAdmission {
    /// Locks the ledger. No caller holds the lock across an await.
    pub(super) fn ledger(&self) -> MutexGuard<'_, CacheLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the runner of trials.
    pub(super) fn notify(&self) {
        self.changed.notify_one();
    }
}

/// Admits the trials of one runner to the upstreams of a proxy.
#[derive(Clone, Debug)]
pub struct TrialAdmission(Arc<Pool>);

impl TrialAdmission {
    /// Returns the admission of a pool that has one.
    pub(crate) fn of(pool: &Arc<Pool>) -> Option<Self> {
        pool.cache.is_some().then(|| Self(Arc::clone(pool)))
    }

    /// Whether a trial may open. Its calls then go to the server where it fits. `kind` names its task and its agent.
    pub fn admit(&self, trial: &TrialId, kind: &str) -> bool {
        self.0.admit(trial, kind)
    }

    /// Frees the place of a trial that makes no further call. Idempotent.
    pub fn release(&self, trial: &TrialId) {
        self.0.forget(trial);
    }

    /// Waits until a trial that was not admitted may fit.
    pub async fn changed(&self) {
        match &self.0.cache {
            Some(cache) => cache.changed.notified().await,
            None => std::future::pending().await,
        }
    }
}

/// Returns the tokens of a call that sampled something. `None` if it used no cache.
pub(super) fn of_call(records: &[Arc<Call>]) -> Option<EndedCall> {
    let call = records.iter().max_by_key(|call| call.prompt_token_ids.len())?;
    let answer = call.choices.iter().map(|choice| choice.token_ids.len()).max()?;
    let prompt = call.prompt_token_ids.len() as u64;
    let continues = matches!(call.continuation, Some(Continuation::Spliced { .. }));
    (prompt > 0).then_some(EndedCall { prompt, answer: answer as u64, continues })
}

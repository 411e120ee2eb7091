//! Admission by cache residency: a trial opens where its conversation fits into the KV cache beside those that are open.
//!
//! Where too many conversations are open, each is evicted from the KV cache before its next turn, and the server computes it
//! again. The proxy knows the length and the server of each conversation, so it can prevent that: [`ledger`] forecasts how
//! many tokens the open trials need ([`forecast`], from the [`lengths`] of trials and the [`prefixes`] that they share) and
//! compares the forecast with the size of the cache ([`report`]). A [`correction`] of that size follows from a prediction of
//! the [`throughput`].

pub(super) mod conversations;
mod correction;
mod forecast;
pub(super) mod ledger;
mod lengths;
mod prefixes;
pub(super) mod report;
mod throughput;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rolltap_rollout::call::Call;
use rolltap_rollout::ids::TrialId;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::conversations::Conversations;
use self::ledger::{CacheLedger, EndedCall, ServerId};
use self::report::CacheReport;
use super::{ModelCard, Pool};

/// The ledger of a pool, with a notification of changes.
#[derive(Debug)]
pub(super) struct CacheAdmission {
    ledger: Mutex<CacheLedger>,
    started: Instant,
    /// Notified when a report arrives or a trial frees its place.
    changed: Notify,
}

impl Default for CacheAdmission {
    fn default() -> Self {
        Self { ledger: Mutex::default(), started: Instant::now(), changed: Notify::new() }
    }
}

impl CacheAdmission {
    /// Updates the cache of a server. Returns whether its metrics became usable or ceased to be.
    pub(super) fn report(
        &self,
        server: ServerId,
        report: Option<CacheReport>,
        card: Option<&ModelCard>,
    ) -> bool {
        let mut ledger = self.ledger();
        if let Some(context) = card.and_then(|card| card.max_model_len) {
            ledger.set_context(context);
        }
        let is_news = ledger.report(server, report, self.started.elapsed().as_secs_f64());
        drop(ledger);
        self.notify();
        is_news
    }

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

/// Returns the tokens of a call that sampled something, and adds it to the conversations of its trial. `None` if the call used
/// no cache.
pub(super) fn of_call(records: &[Arc<Call>], conversations: &mut Conversations) -> Option<EndedCall> {
    let call = records.iter().max_by_key(|call| call.prompt_token_ids.len())?;
    let answer = call.choices.iter().map(|choice| &choice.token_ids).max_by_key(|answer| answer.len())?;
    let prompt = &call.prompt_token_ids;
    if prompt.is_empty() {
        return None;
    }
    let known = conversations.add(prompt, answer) as u64;
    let seconds = call.ended_at.duration_since(call.started_at).as_secs_f64();
    Some(EndedCall { prompt: prompt.len() as u64, answer: answer.len() as u64, known, seconds })
}

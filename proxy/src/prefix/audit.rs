//! Audits: of every so many prompts that were put together here, the server is asked for its own rendering of the same
//! messages. It must be ours, id for id.
//!
//! The echo of a prompt tells that the server took it, never that it is right.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rolltap_rollout::ids::TrialId;
use rolltap_rollout::token::TokenId;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::memory::PendingAnswer;
use super::request_kind::RequestKind;
use super::{ExactPrefix, Ready};
use crate::common::history::History;
use crate::common::metrics::Audit;
use crate::render::upstream::UpstreamRenderer;

/// The first splice is audited, and then one of so many.
const EVERY: u64 = 64;

/// What decides which prompts are audited.
#[derive(Debug)]
pub(super) struct Audits {
    spliced: AtomicU64,
    /// One at a time: audits are work for the server too.
    turn: Arc<Semaphore>,
}

impl Audits {
    pub(super) fn new() -> Self {
        Self { spliced: AtomicU64::new(0), turn: Arc::new(Semaphore::new(1)) }
    }
}

impl ExactPrefix {
    /// Audits a prompt that was put together here, if it is its turn. Nobody waits for it.
    pub(super) fn audit_later(self: &Arc<Self>, trial: &TrialId, seed: &PendingAnswer) {
        if !self.audits.spliced.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY) {
            return;
        }
        let request = &seed.inputs.request;
        // vLLM's /tokenize does not know it.
        if request.tool_choice.is_some() {
            return;
        }
        let (Some(Some(ready)), Ok(turn)) =
            (self.renderer.get(), Arc::clone(&self.audits.turn).try_acquire_owned())
        else {
            return;
        };
        // A call may end as the last thing of a runtime.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (prefix, ready, trial, seed) = (Arc::clone(self), Arc::clone(ready), trial.clone(), seed.clone());
        runtime.spawn(async move {
            let outcome = prefix.audit(ready, &trial, seed).await;
            prefix.metrics.audited(outcome);
            drop(turn);
        });
    }

    async fn audit(self: &Arc<Self>, ready: Arc<Ready>, trial: &TrialId, seed: PendingAnswer) -> Audit {
        let Some(theirs) = self.server_rendering(trial, &seed).await else { return Audit::Unanswered };
        let ours = tokio::task::spawn_blocking({
            let seed = seed.clone();
            move || ready.workshop(History::Faithful).rendering(&seed.conversation.messages(), &seed.inputs)
        });
        let shape = RequestKind::of(&seed.conversation.messages(), &seed.inputs);
        match ours.await {
            Ok(Ok(ours)) if theirs == ours => {
                self.proven(shape);
                Audit::Equal
            }
            _ => {
                let reason = "the server, asked for its rendering of the messages, says other ids";
                self.refuted(shape, trial, reason);
                Audit::Different
            }
        }
    }

    /// The ids that the server makes of the messages; none where it does not say.
    async fn server_rendering(&self, trial: &TrialId, seed: &PendingAnswer) -> Option<Vec<TokenId>> {
        let messages = seed.conversation.messages();
        let messages: Option<Vec<Value>> = messages.iter().map(|message| message.json()).collect();
        let model = seed.inputs.model.as_ref()?.as_str()?;
        let asked = UpstreamRenderer { pool: &self.upstream, trial, model };
        asked.render(&messages?, &seed.inputs.request, true).await.ok()
    }
}

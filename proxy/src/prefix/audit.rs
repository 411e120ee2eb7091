//! Audits: for one of `EVERY` spliced prompts, the server renders the same messages (`/tokenize`). Its ids must equal
//! the proxy's, id for id.
//!
//! The server's echo of a prompt proves that the server used the prompt, not that the prompt is correct.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rolltap_rollout::call::Call;
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::token::TokenId;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::memory::PendingAnswer;
use super::refutation::Refutation;
use super::request_kind::RequestKind;
use super::{ExactPrefix, Ready};
use crate::common::clock;
use crate::common::history::History;
use crate::common::metrics::Audit;
use crate::render::upstream::UpstreamRenderer;
use crate::store::{CallNote, CallNoteKind, Event};

/// The first spliced prompt is audited, and then one of this many.
const EVERY: u64 = 64;

/// The state that selects prompts for audits.
#[derive(Debug)]
pub(super) struct Audits {
    spliced: AtomicU64,
    /// Permits one audit at a time: audits are work for the server too.
    turn: Arc<Semaphore>,
}

impl Audits {
    pub(super) fn new() -> Self {
        Self { spliced: AtomicU64::new(0), turn: Arc::new(Semaphore::new(1)) }
    }

    /// Waits for the audit that has begun.
    pub(super) async fn settled(&self) {
        drop(self.turn.acquire().await);
    }
}

impl ExactPrefix {
    /// Starts an audit of the call's spliced prompt if it is due. The caller does not wait for the result.
    pub(super) fn audit_later(self: &Arc<Self>, call: &Call, seed: &PendingAnswer) {
        if !self.audits.spliced.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY) {
            return;
        }
        let request = &seed.inputs.request;
        // vLLM's `/tokenize` does not know `tool_choice`.
        if request.tool_choice.is_some() {
            return;
        }
        // Skip the audit while another one runs: audits must not queue up behind a slow server.
        let (Some(Some(ready)), Ok(turn)) =
            (self.renderer.get(), Arc::clone(&self.audits.turn).try_acquire_owned())
        else {
            return;
        };
        // The last call of a runtime may end while the runtime shuts down.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (prefix, ready, seed) = (Arc::clone(self), Arc::clone(ready), seed.clone());
        let (trial_id, call_id) = (call.trial_id.clone(), call.call_id.clone());
        runtime.spawn(async move {
            let outcome = prefix.audit(ready, &trial_id, seed).await;
            prefix.metrics.audited(outcome);
            if let Some(is_equal) = outcome.verdict() {
                let note = CallNote { call_id, kind: CallNoteKind::Audited { is_equal }, at: clock::now() };
                prefix.store.note(Event::Noted { trial_id, note }).await;
            }
            drop(turn);
        });
    }

    pub(super) async fn audit(
        self: &Arc<Self>,
        ready: Arc<Ready>,
        trial: &TrialId,
        seed: PendingAnswer,
    ) -> Audit {
        let Some(theirs) = self.server_rendering(trial, &seed).await else { return Audit::Unanswered };
        // A long rendering would block the streams on this thread.
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
            Ok(Ok(_)) => {
                self.refuted(shape, trial, Refutation::OtherIdsInAudit);
                Audit::Different
            }
            // This shows nothing about the server, so the score of the kind is unchanged.
            failed => {
                tracing::warn!(%trial, ?failed, "an audit of a spliced prompt failed: its messages cannot be rendered");
                Audit::Failed
            }
        }
    }

    /// Returns the ids that the server renders for the messages. `None` if a message is not JSON, the request names no
    /// model, or the server does not answer.
    async fn server_rendering(&self, trial: &TrialId, seed: &PendingAnswer) -> Option<Vec<TokenId>> {
        let messages = seed.conversation.messages();
        let messages: Option<Vec<Value>> = messages.iter().map(|message| message.json()).collect();
        let model = seed.inputs.model.as_ref()?.as_str()?;
        let asked = UpstreamRenderer { pool: &self.upstream, trial, model };
        asked.render(&messages?, &seed.inputs.request, true).await.ok()
    }
}

//! The decision about one call's prompt: the answer that it continues, the ids to send, and the data to store.

use std::sync::Arc;

use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::call::{Call, CallStatus};
use rolltap_rollout::continuation::{AnswerRef, Class, Continuation};
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::token_list::TokenList;

use super::memory::{Looked, Maker, Memory, PendingAnswer, Predecessor, read_answers};
use super::message::StoredMessage;
use super::node::Node;
use super::request::PromptRequest;
use super::request_kind::RequestKind;
use super::splice::{Spliced, Unspliced};
use super::{ExactPrefix, Ready};
use crate::common::history::History;
use crate::common::redaction::Redaction;
use crate::store::StoredConversation;
use crate::upstream::Session;
use crate::wire::chat_outline::ChatOutline;

/// The decision about a call's prompt.
#[derive(Debug)]
pub(crate) struct Plan {
    prefix: Arc<ExactPrefix>,
    pub(crate) continuation: Continuation,
    pub(crate) session: Session,
    /// The ids of the prompt, or `None` if the server renders the messages.
    pub(crate) ids: Option<TokenList>,
    seed: PendingAnswer,
    /// The data to store if the server renders the messages although it got ids.
    rendered: PendingAnswer,
}

impl ExactPrefix {
    /// Decides about the prompt of a chat request before the request goes upstream. Returns `None` if no server would
    /// accept the form of the request, or if the trial's memory is closed.
    pub(crate) async fn plan(
        self: &Arc<Self>,
        trial: &TrialId,
        memory: &Memory,
        request: &ChatOutline<'_>,
        history: History,
        has_media: bool,
    ) -> Option<Plan> {
        let request = PromptRequest::of(request)?;
        let needs_messages = request.needs_messages.or(has_media.then_some("media"));
        let Looked { found, conversation, inputs, session } = memory.find(&request)?;
        // A prompt with media or a truncated prompt proves nothing about the template.
        let maker = if needs_messages.is_some() { Maker::ServerOtherwise } else { Maker::Server };
        let rendered = PendingAnswer { conversation, inputs, maker };
        let (node, new, is_edited) = match found {
            Predecessor::New(cause) => {
                return Some(self.by_text(Continuation::Fresh { cause }, session, rendered));
            }
            Predecessor::Otherwise { parent, cause } => {
                let continuation = Continuation::Rendered { parent, cause, class: None };
                return Some(self.by_text(continuation, session, rendered));
            }
            Predecessor::Continues { node, new, is_edited } => (node, new, is_edited),
        };
        let ready = self.ready(self.upstream.model_card(trial).await.dir.clone()).await;
        let spliced = match (needs_messages, ready) {
            (Some(key), _) => Err(unspliced(BranchCause::Unproven, format!("{key} needs the messages"))),
            (None, _) if !self.upstream.takes_ids(trial) => {
                Err(unspliced(BranchCause::UpstreamUnable, "the server takes no ids".to_owned()))
            }
            (None, None) if !self.may_ask(&rendered.inputs) => Err(unspliced(
                BranchCause::Unproven,
                "no tokenizer is at hand, and the server is none".to_owned(),
            )),
            (None, ready) => self.splice(ready, trial, &node, &new, history).await,
        };
        Some(match spliced {
            Ok(Spliced { ids, class, standing }) => {
                let conversation = memory.continued(&node, &new)?;
                let seed = PendingAnswer {
                    conversation,
                    inputs: Arc::clone(&rendered.inputs),
                    maker: Maker::Here(standing),
                };
                let continuation = Continuation::Spliced { parent: node.name(), class, is_edited };
                Plan { prefix: Arc::clone(self), continuation, session, ids: Some(ids), seed, rendered }
            }
            Err(Unspliced { cause, class, reason }) => {
                tracing::debug!(parent = %node.name().call_id, %cause, reason, "the prompt is left to the server");
                self.by_text(Continuation::Rendered { parent: node.name(), cause, class }, session, rendered)
            }
        })
    }

    fn by_text(
        self: &Arc<Self>,
        continuation: Continuation,
        session: Session,
        rendered: PendingAnswer,
    ) -> Plan {
        Plan { prefix: Arc::clone(self), continuation, session, ids: None, seed: rendered.clone(), rendered }
    }

    /// Splices on a blocking thread: rendering a long conversation takes longer than other streams may wait. Asks the
    /// trial's server if there is no renderer.
    async fn splice(
        self: &Arc<Self>,
        ready: Option<Arc<Ready>>,
        trial: &TrialId,
        node: &Arc<Node>,
        new: &[Arc<StoredMessage>],
        history: History,
    ) -> Result<Spliced, Unspliced> {
        let (prefix, trial) = (Arc::clone(self), trial.clone());
        let (node, new) = (Arc::clone(node), new.to_vec());
        let made = tokio::task::spawn_blocking(move || {
            let messages: Vec<_> = node.said.messages().into_iter().chain(new.iter().cloned()).collect();
            // Check the score first: a kind that is off then costs no rendering.
            if prefix.trust.is_off(&RequestKind::of(&messages, &node.inputs), &trial) {
                return Err(unspliced(BranchCause::Unproven, "requests of its kind are off".to_owned()));
            }
            let ready = match ready {
                Some(ready) => ready,
                None => Arc::new(prefix.ask(trial, &node.inputs)?),
            };
            if !prefix.prove(&ready, &node) {
                return Err(unspliced(
                    BranchCause::Unproven,
                    "the prompt before it is not proven".to_owned(),
                ));
            }
            ready.workshop(history).splice(&node, &new)
        });
        // An error here is a panic of the renderer. It costs only this splice.
        made.await
            .unwrap_or_else(|_| Err(unspliced(BranchCause::Unproven, "the renderer broke down".to_owned())))
    }
}

impl Plan {
    /// Handles a server that rendered the messages although it got ids: the record states the prompt that was used.
    pub(crate) fn ids_were_refused(&mut self) {
        if self.ids.take().is_none() {
            return;
        }
        self.seed = self.rendered.clone();
        if let Continuation::Spliced { parent, class, .. } = &self.continuation {
            let (parent, class): (AnswerRef, Option<Class>) = (parent.clone(), Some(*class));
            self.continuation = Continuation::Rendered { parent, cause: BranchCause::UpstreamUnable, class };
        }
    }

    /// Stores the answers of a call, so that other calls can continue them. Returns the stored form of the
    /// conversation.
    pub(crate) fn answered(
        self,
        memory: &Memory,
        call: &Arc<Call>,
        answers: Vec<(u32, Option<String>)>,
        redaction: &Redaction,
    ) -> Arc<StoredConversation> {
        let answers = read_answers(answers);
        let told = Arc::new(self.seed.told(&answers, redaction));
        self.prefix.metrics.prompt(&self.continuation);
        // Skip failed calls: their trial may be sealed and have no replica any more.
        if self.ids.is_some() && call.status == CallStatus::Complete {
            self.prefix.audit_later(call, &self.seed);
        }
        // Prove the prompts now, because the next turn needs the result.
        for node in memory.answered(&self.seed, call, &answers) {
            self.prefix.prove_later(node);
        }
        told
    }
}

fn unspliced(cause: BranchCause, reason: String) -> Unspliced {
    Unspliced { cause, class: None, reason }
}

//! Shared code of the hard cases: a conversation on the tiny model, and the checks of its calls.

use rolltap_proxy::History;
use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::call::Call;
use rolltap_rollout::continuation::Continuation;
use serde_json::{Value, json};

use super::models::TINY;
use crate::conversation::{Answer, Conversation, Echo, Manner, Wire};
use crate::harness::{Stage, testbed, vllm};

/// A conversation in a trial of its own.
pub(super) struct Scene<'a> {
    pub(super) stage: &'a Stage,
    pub(super) trial: TrialOpened,
    pub(super) talk: Conversation<'a>,
    pub(super) history: History,
    stream: bool,
}

/// Runs a case in each mode that preserves tokens, with whole answers and with streams.
pub(super) async fn in_each_mode(tools: bool, case: impl AsyncFn(&mut Scene<'_>)) {
    let stage = Stage::with_tokenizer(vllm(), testbed("ROLLTAP_TESTBED_MODEL")).await;
    for history in [History::Faithful, History::Sampled] {
        for stream in [false, true] {
            let trial = stage.open_with(history).await;
            let manner = Manner { wire: Wire::Chat, stream, echo: Echo::Whole, tools };
            let talk = Conversation::new(&stage, &trial, TINY.name, manner, "Today is the 21st.");
            case(&mut Scene { stage: &stage, trial, talk, history, stream }).await;
        }
    }
}

/// Returns the keys of a request that restrict the answer to this pattern.
pub(crate) fn saying(regex: &str) -> Value {
    json!({
        "temperature": 1, "max_tokens": 120, "chat_template_kwargs": {"enable_thinking": false},
        "structured_outputs": {"regex": regex}, "logit_bias": {TINY.end_of_turn.to_string(): 50},
    })
}

impl Scene<'_> {
    /// Sends a user message and appends the answer to the history.
    pub(super) async fn turn(&mut self, text: &str, asked: &Value) -> Answer {
        self.talk.add_user_message(text);
        self.talk.ask(asked).await
    }

    pub(super) async fn calls(&self) -> Vec<Call> {
        self.stage.calls(&self.trial).await
    }

    pub(super) async fn last(&self) -> Call {
        self.calls().await.pop().unwrap()
    }

    /// Checks that a call's prompt begins with the parent's prompt and this choice of its answers.
    pub(super) fn goes_on(&self, child: &Call, parent: &Call, choice: usize) {
        let mut whole = parent.prompt_token_ids.clone();
        whole.extend_from_slice(&parent.choices[choice].token_ids);
        let told = &child.continuation;
        assert!(child.prompt_token_ids.starts_with(&whole), "{}: {told:?}", self.name());
        let Some(Continuation::Spliced { parent: of, .. }) = told else {
            panic!("{}: {told:?}", self.name());
        };
        assert_eq!((&of.call_id, of.choice as usize), (&parent.call_id, choice), "{}", self.name());
    }

    /// Checks that the last call extends the previous one.
    pub(super) async fn last_goes_on(&self) {
        let calls = self.calls().await;
        self.goes_on(&calls[calls.len() - 1], &calls[calls.len() - 2], 0);
    }

    /// Checks that the last call, with this request, had vLLM's own prompt, and that the record has one of these
    /// causes.
    pub(super) async fn last_is_rendered(&self, request: &Value, causes: &[BranchCause]) {
        let last = self.last().await;
        let own = self.stage.rendered(request).await;
        assert_eq!(last.prompt_token_ids, own, "{}: {:?}", self.name(), last.continuation);
        let cause = last.continuation.as_ref().and_then(Continuation::cause);
        assert!(
            cause.is_some_and(|cause| causes.contains(&cause)),
            "{}: {:?}",
            self.name(),
            last.continuation
        );
    }

    pub(super) fn name(&self) -> String {
        format!("{}, {}", self.history, if self.stream { "streamed" } else { "whole" })
    }
}

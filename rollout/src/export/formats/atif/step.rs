//! A step: an answer with the ids of its prompt, or a message of its request.

use std::iter::Copied;
use std::slice::Iter;

use jiff::Timestamp;
use serde::Serialize;

use super::message::{AgentMessage, Observation, role_of, text_of};
use crate::export::shared::float_text::{Exact, finite};
use crate::export::shared::transcript::Message;
use crate::export::shared::turn::BranchTurn;

#[derive(Serialize)]
pub(super) struct Step<'a> {
    step_id: usize,
    #[serde(flatten)]
    content: Content<'a>,
}

/// The source of a step and its fields. ATIF allows only agents' steps to have metrics, reasoning and tool calls.
#[derive(Serialize)]
#[serde(tag = "source", rename_all = "lowercase")]
enum Content<'a> {
    System {
        message: String,
        /// The result of a tool call that is no step of this trajectory.
        #[serde(skip_serializing_if = "Option::is_none")]
        observation: Option<Observation>,
    },
    User {
        message: String,
    },
    Agent(Box<AgentStep<'a>>),
}

#[derive(Serialize)]
struct AgentStep<'a> {
    #[serde(flatten)]
    words: AgentMessage,
    #[serde(flatten)]
    call: Option<CallData<'a>>,
    /// True for an answer that a request has and that no call of this trajectory gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_copied_context: Option<bool>,
}

/// The captured data of an answer.
#[derive(Serialize)]
struct CallData<'a> {
    timestamp: Timestamp,
    metrics: Metrics<'a>,
    llm_call_count: u8,
    extra: StepExtra<'a>,
    #[serde(skip)]
    has_words: bool,
}

#[derive(Serialize)]
struct Metrics<'a> {
    prompt_tokens: usize,
    completion_tokens: usize,
    prompt_token_ids: &'a [i32],
    completion_token_ids: &'a [i32],
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Exact<Copied<Iter<'a, f32>>>>,
    extra: TokenExtra<'a>,
}

/// Lists with a value per token of the answer.
#[derive(Serialize)]
struct TokenExtra<'a> {
    loss_mask: &'a [u8],
    token_version: &'a [i32],
}

#[derive(Serialize)]
struct StepExtra<'a> {
    call_id: &'a str,
    choice_index: i32,
    role: &'a str,
    finish_reason: Option<&'a str>,
    #[serde(serialize_with = "finite")]
    temperature: Option<f64>,
    #[serde(serialize_with = "finite")]
    top_p: Option<f64>,
    top_k: Option<i64>,
    constrained: bool,
}

impl<'a> Step<'a> {
    /// Returns the step of an answer. `answer` is `None` if its words were not recorded.
    pub(super) fn of_answer(step_id: usize, turn: &BranchTurn<'a>, answer: Option<&Message>) -> Self {
        let span = turn.span;
        let is_trained = turn.loss_mask().contains(&1);
        let call = CallData {
            timestamp: span.sampled_at,
            metrics: Metrics {
                prompt_tokens: turn.answer.start,
                completion_tokens: turn.answer.len(),
                prompt_token_ids: turn.prompt_ids(),
                completion_token_ids: turn.answer_ids(),
                // Without a mask, the absence of logprobs is the only sign that an answer is not trained.
                logprobs: is_trained.then(|| Exact(turn.logprobs().iter().copied())),
                extra: TokenExtra { loss_mask: turn.loss_mask(), token_version: turn.versions() },
            },
            llm_call_count: 1,
            extra: StepExtra {
                call_id: &span.call_id,
                choice_index: span.choice_index,
                role: &span.role,
                finish_reason: span.finish_reason.as_deref(),
                temperature: span.temperature,
                top_p: span.top_p,
                top_k: span.top_k,
                constrained: span.constrained,
            },
            has_words: answer.is_some(),
        };
        let words = answer.map(AgentMessage::of).unwrap_or_default();
        let step = AgentStep { words, call: Some(call), is_copied_context: None };
        Self { step_id, content: Content::Agent(Box::new(step)) }
    }

    /// Returns the step of a message of a request.
    pub(super) fn of_message(step_id: usize, message: &Message) -> Self {
        let content = match role_of(message) {
            "assistant" => Content::Agent(Box::new(AgentStep {
                words: AgentMessage::of(message),
                call: None,
                is_copied_context: Some(true),
            })),
            "tool" => Content::System {
                message: String::new(),
                observation: Some(Observation::of_elsewhere(message)),
            },
            // The names of both kinds of instructions: `developer` replaces `system` for some models.
            "system" | "developer" => Content::System { message: text_of(message), observation: None },
            _ => Content::User { message: text_of(message) },
        };
        Self { step_id, content }
    }

    /// Adds the result of a tool call to the step that called the tool. Returns false if this is another step.
    pub(super) fn observe(&mut self, result: &Message) -> bool {
        match &mut self.content {
            Content::Agent(step) => step.words.observe(result),
            Content::System { .. } | Content::User { .. } => false,
        }
    }

    /// Whether the words of the step are recorded. Only those of an answer may be absent.
    pub(super) fn has_words(&self) -> bool {
        self.call().is_none_or(|call| call.has_words)
    }

    /// Whether a token of the step is trained, if it is an answer.
    pub(super) fn is_trained_answer(&self) -> bool {
        self.call().is_none_or(|call| call.metrics.logprobs.is_some())
    }

    fn call(&self) -> Option<&CallData<'a>> {
        match &self.content {
            Content::Agent(step) => step.call.as_ref(),
            Content::System { .. } | Content::User { .. } => None,
        }
    }
}

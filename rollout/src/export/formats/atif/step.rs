//! A step: one answer, with the ids of its prompt.

use std::iter::Copied;
use std::slice::Iter;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::export::exporter::ExportError;
use crate::export::shared::float_text::{Exact, finite};
use crate::export::shared::lines::refused;
use crate::export::shared::turn::BranchTurn;
use crate::row::RolloutRow;

#[derive(Serialize)]
pub(super) struct Step<'a> {
    step_id: usize,
    timestamp: Timestamp,
    source: &'static str,
    message: &'static str,
    metrics: Metrics<'a>,
    llm_call_count: u8,
    extra: StepExtra<'a>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<&'a RawValue>,
}

impl<'a> Step<'a> {
    /// # Errors
    /// The call's messages are not JSON.
    pub(super) fn new(step_id: usize, turn: BranchTurn<'a>, row: &RolloutRow) -> Result<Self, ExportError> {
        let span = turn.span;
        // The messages are checked, because invalid JSON would make the whole line unreadable.
        let messages = span.messages.as_deref().map(serde_json::from_str).transpose().map_err(|error| {
            refused(row, format!("the messages of call {} are no JSON: {error}", span.call_id))
        })?;
        let is_trained = turn.loss_mask().contains(&1);
        Ok(Self {
            step_id,
            timestamp: span.sampled_at,
            source: "agent",
            message: "",
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
                messages,
            },
        })
    }

    pub(super) fn has_messages(&self) -> bool {
        self.extra.messages.is_some()
    }

    pub(super) fn is_trained(&self) -> bool {
        self.metrics.logprobs.is_some()
    }
}

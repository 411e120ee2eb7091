//! Translates errors to the form and wording that Anthropic's clients act on.
//!
//! The wording matters. Claude Code compacts the conversation if the error states that the prompt is too long. It
//! requests a shorter answer if the error states the limit. It puts reminders into user turns if the error states that
//! later system messages are not supported.

use std::borrow::Cow;

use http::StatusCode;

use super::event::{Event, Fault};
use crate::dialect::upstream_error::{Overflow, UpstreamError, number_after};

/// Returns the body of an error answer.
pub(crate) fn error_body(error: &UpstreamError) -> Vec<u8> {
    let message = message(error);
    serde_json::to_vec(&Event::Error { error: Fault { kind: kind(error), message: &message } })
        .unwrap_or_default()
}

/// Returns Anthropic's name for an error with this status.
pub(super) fn kind(error: &UpstreamError) -> &'static str {
    match error.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    }
}

/// Returns upstream's message, reworded if clients know the error in Anthropic's words.
pub(super) fn message(error: &UpstreamError) -> Cow<'_, str> {
    let said = error.message.as_str();
    let known = match error.overflow {
        Some(overflow) => Some(overflow_message(overflow, said)),
        None if error.status == StatusCode::BAD_REQUEST => {
            answer_too_long(said).or_else(|| misplaced_system_message(said))
        }
        None => None,
    };
    known.map_or(Cow::Borrowed(said), Cow::Owned)
}

fn overflow_message(Overflow { limit, prompt }: Overflow, said: &str) -> String {
    match (prompt, limit, answer_asked_for(said)) {
        // The prompt alone fits, so a shorter answer is a remedy.
        (Some(prompt), Some(limit), Some(answer)) if prompt < limit => exceeded(prompt, answer, limit),
        (Some(prompt), Some(limit), _) => format!("prompt is too long: {prompt} tokens > {limit} maximum"),
        _ => format!("prompt is too long: {said}"),
    }
}

/// Rewords vLLM's error for an answer longer than the context, which vLLM rejects before it examines the prompt.
fn answer_too_long(said: &str) -> Option<String> {
    let limit = number_after(said, "max_model_len=", "")?;
    Some(exceeded(0, answer_asked_for(said)?, limit))
}

fn exceeded(prompt: u64, answer: u64, limit: u64) -> String {
    format!(
        "input length and `max_tokens` exceed context limit: {prompt} + {answer} > {limit}, decrease input length or \
         `max_tokens` and try again"
    )
}

fn answer_asked_for(said: &str) -> Option<u64> {
    ["max_tokens=", "max_completion_tokens=", "is too large: "]
        .into_iter()
        .find_map(|before| number_after(said, before, ""))
}

/// Rewords the errors of chat templates that require system text at the beginning or do not support it. Each template
/// has its own message.
fn misplaced_system_message(said: &str) -> Option<String> {
    let lower = said.to_lowercase();
    // The templates' messages differ, so only their typical words are compared.
    let is_of_system = lower.contains("system message") || lower.contains("system role");
    let is_refusal = ["beginning", "first", "not supported", "only supported"]
        .into_iter()
        .any(|word| lower.contains(word));
    (is_of_system && is_refusal).then(|| {
        format!("role: system in `messages` is not supported by the chat template of this model: {said}")
    })
}

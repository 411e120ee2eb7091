//! The Anthropic Messages API, translated to chat completions: what Claude Code and the Anthropic SDKs speak.
//!
//! **Carried over**: system text, turns of text, thinking, tool use and tool results, images, text documents, a prefilled
//! answer; custom tools and the choice among them; sampling, stop sequences, thinking and effort, a JSON schema of the
//! answer. A prompt is the one that vLLM's own `/v1/messages` would make of the same request, with three differences:
//! tool results stand in the order of their calls, images of tool results behind all of a turn's results, and a
//! prefilled answer is continued.
//!
//! **Accepted without effect**, because it has none on a model of one's own: the keys in `request::WITHOUT_EFFECT`, `cache_control`
//! and `citations` wherever they stand, redacted thinking, signatures, `is_error` (its text says it), edits of
//! `context_management` that would shorten the prompt, and Claude Code's billing header, a system text that differs from
//! request to request.
//!
//! **Refused**: what Anthropic's servers would do themselves (their tools, files, containers, MCP), and any key that is
//! not known here.

mod answer;
mod block;
mod conversation;
mod count;
mod error;
mod event;
mod members;
mod reasoning;
mod request;
mod stream;
mod tools;

#[cfg(test)]
mod tests;

pub(crate) use count::{count_answer, count_request};
pub(crate) use error::error_body;
pub(crate) use request::{Translated, translate};

//! Translates the Anthropic Messages API, which Claude Code and the Anthropic SDKs use, to chat completions.
//!
//! **Translated**: system text, turns of text, thinking, tool use and tool results, images, text documents, a prefilled
//! answer; custom tools and the choice among them; sampling, stop sequences, thinking and effort, a JSON schema for the
//! answer. The prompt is the same that vLLM's own `/v1/messages` produces for the same request, with three differences:
//! tool results are in the order of their calls, images of tool results come after all results of the turn, and a
//! prefilled answer is continued.
//!
//! **Accepted without effect**, because a local model has no use for them: the keys in `request::WITHOUT_EFFECT`,
//! `cache_control` and `citations` at any place, redacted thinking, signatures, `is_error` (the text of the result
//! states the error), edits of `context_management` that would shorten the prompt, and Claude Code's billing header, a
//! system text that differs between requests.
//!
//! **Rejected**: features that Anthropic's servers implement (their tools, files, containers, MCP), and every unknown
//! key.

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

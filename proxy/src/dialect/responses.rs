//! Translates OpenAI's Responses, the dialect of Codex and the OpenAI agents SDK, to chat completions and back.
//!
//! **Translated:** `input` (a string, or items: messages with text, images and audio, `function_call`,
//! `custom_tool_call` and `tool_search_call` with their outputs, `reasoning`, `item_reference`), `instructions`,
//! `previous_response_id` ([`memory`]), `tools` of type `function`, `custom`, `namespace` and client-run `tool_search`,
//! `tool_choice`, `parallel_tool_calls`, `text.format`, `reasoning.effort`, `max_output_tokens`, `temperature`,
//! `top_p`, `stream`, `store`, and vLLM's sampling extras.
//! - Consecutive items of reasoning, message and calls become one assistant message.
//! - Instructions and the leading system and developer messages become one system message. Later ones remain at their
//!   place, as system messages.
//! - A custom tool becomes a function with the single argument `input`, with its grammar in the description. A function
//!   of a namespace is named `NAMESPACE__NAME`. With `allowed_tools` the model sees only the allowed tools.
//! - Reasoning is returned as `reasoning_text`, and in `encrypted_content` (which is only encoded, not encrypted) if
//!   the agent includes it. There are no summaries.
//!
//! **Accepted without effect:** `client_metadata`, `max_tool_calls`, `metadata`, `prompt_cache_key`,
//! `prompt_cache_options`, `prompt_cache_retention`, `safety_identifier`, `service_tier`, `stream_options`,
//! `truncation` (a prompt that does not fit is an error), `user`, `text.verbosity`, `reasoning.summary`, inclusion of
//! results of hosted tools, keys of items without meaning for a model (`id`, `status`, `phase`, `annotations`), and the
//! tool `web_search`, which Codex always offers: the model does not see it.
//!
//! **Rejected:** `background`, `conversation`, `prompt`, `context_management`, logprobs, files, every other hosted tool
//! and its items, and unknown keys.

mod answer;
mod carried_reasoning;
mod content;
mod custom_input;
mod error;
mod events;
mod input;
mod items;
mod memory;
mod object;
mod reading;
mod request;
#[cfg(test)]
mod tests;
mod tools;

pub(crate) use error::error_body;
pub(crate) use memory::Memory;
pub(crate) use request::{Translated, translate};

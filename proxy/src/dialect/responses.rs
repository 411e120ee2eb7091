//! OpenAI's Responses, the dialect of Codex and the OpenAI agents SDK, translated to chat completions and back.
//!
//! **Carried over:** `input` (a string, or items: messages with text, images and audio, `function_call`,
//! `custom_tool_call` and `tool_search_call` with their outputs, `reasoning`, `item_reference`), `instructions`,
//! `previous_response_id` ([`memory`]), `tools` of type `function`, `custom`, `namespace` and client-run `tool_search`,
//! `tool_choice`, `parallel_tool_calls`, `text.format`, `reasoning.effort`, `max_output_tokens`, `temperature`, `top_p`,
//! `stream`, `store`, and vLLM's sampling extras.
//! - Reasoning, message and calls that follow one another are one assistant message.
//! - Instructions and the system and developer messages before all others become one system message; later ones stay
//!   where they are, as system messages.
//! - A custom tool is a function with the one argument `input`, its grammar in the description; a function of a namespace
//!   is called `NAMESPACE__NAME`; `allowed_tools` shows the model the allowed tools only.
//! - Reasoning comes as `reasoning_text`, and in `encrypted_content` (ours: only encoded) where the agent includes it.
//!   There are no summaries.
//!
//! **Accepted without effect:** `client_metadata`, `max_tool_calls`, `metadata`, `prompt_cache_key`,
//! `prompt_cache_options`, `prompt_cache_retention`, `safety_identifier`, `service_tier`, `stream_options`, `truncation`
//! (a prompt that does not fit is an error), `user`, `text.verbosity`, `reasoning.summary`, inclusion of results of hosted
//! tools, keys of items that say nothing to a model (`id`, `status`, `phase`, `annotations`), and the tool `web_search`,
//! which Codex always offers: the model is not told of it.
//!
//! **Refused:** `background`, `conversation`, `prompt`, `context_management`, logprobs, files, every other hosted tool and
//! its items, and keys that are on no list.

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

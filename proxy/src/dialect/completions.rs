//! Completions, the other form that vLLM speaks with ids and logprobs: text or token prompts, one or a batch of them.
//!
//! Each prompt of a batch is a call of its own in the record: vLLM numbers its answers `prompt * n + sample`.

pub(crate) mod answer;
pub(crate) mod request;

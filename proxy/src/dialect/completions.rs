//! Completions, for which vLLM also returns ids and logprobs. A prompt is text or token ids, and a request may have a
//! batch of prompts.
//!
//! Each prompt of a batch has its own call in the record: vLLM numbers its answers `prompt * n + sample`.

pub(crate) mod answer;
pub(crate) mod request;

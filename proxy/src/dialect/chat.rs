//! Chat completions, which vLLM itself offers. The request gets the keys that make vLLM return ids and logprobs, and
//! fields that the agent did not request are removed from the answer.

pub(crate) mod answer;
pub(crate) mod completion;
pub(crate) mod media;
pub(crate) mod request;

//! Chat completions, the form that vLLM speaks: a request gets what makes vLLM report ids and logprobs, and its answer
//! loses again what the agent did not ask for.

pub(crate) mod answer;
pub(crate) mod completion;
pub(crate) mod media;
pub(crate) mod request;

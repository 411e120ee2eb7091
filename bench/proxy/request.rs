//! The bodies of requests.

use bytes::Bytes;

use crate::answer::{self, Knobs};

/// The size of a conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Bytes of the first message.
    pub(crate) first: usize,
    /// Bytes of the observation that follows each answer.
    pub(crate) observation: usize,
}

/// Returns the body of a request after that many turns of the conversation of that name.
pub(crate) fn body(knobs: &Knobs, stream: bool, size: Size, name: &str, turns: usize) -> Bytes {
    let stream = if stream { r#","stream":true,"stream_options":{"include_usage":true}"# } else { "" };
    let (answer, observation) = (answer::text(knobs.tokens), text(size.observation));
    let mut messages = format!(
        r#"{{"role":"system","content":"You are a helpful agent. {name} {}"}},{{"role":"user","content":"Fix the bug."}}"#,
        text(size.first)
    );
    for turn in 0..turns {
        messages.push_str(&format!(
            r#",{{"role":"assistant","content":"{answer}"}},{{"role":"user","content":"[tool {turn}] {observation}"}}"#
        ));
    }
    format!(
        r#"{{"model":"{}","messages":[{messages}],"max_tokens":{},"temperature":1.0{stream},"return_token_ids":true,"logprobs":true}}"#,
        knobs.as_model(),
        knobs.tokens,
    )
    .into()
}

/// Returns at least that many bytes of text, as it is inside a JSON string.
fn text(bytes: usize) -> String {
    const LINE: &str = "def f(x):\\n    return x + 1  # the output of a tool with a caf\\u00e9, some words and a line end\\n";
    LINE.repeat(bytes.div_ceil(LINE.len()))
}

//! A typed chat answer or chunk, for the translated dialects.
//!
//! Ids and logprobs are not part of these types: they are recorded from the raw text ([`super::answer`]), and no
//! translated dialect has a field for them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A whole answer (`message`), or one chunk of a stream (`delta`).
#[derive(Debug, Deserialize)]
pub(crate) struct ChatCompletion<'a> {
    /// vLLM's id, `chatcmpl-…`.
    #[serde(borrow, default)]
    pub(crate) id: Cow<'a, str>,
    /// The creation time, in Unix seconds.
    #[serde(default)]
    pub(crate) created: u64,
    #[serde(borrow, default)]
    pub(crate) choices: Vec<CompletionChoice<'a>>,
    /// The token counts. In a stream they come in a separate chunk after the last choice, if
    /// `stream_options.include_usage` is set.
    #[serde(default)]
    pub(crate) usage: Option<Usage>,
    /// The number of prompt tokens. The ids are in the first chunk of a stream or in the whole answer, and only their
    /// number matters here.
    #[serde(default)]
    pub(crate) prompt_token_ids: Option<Length>,
    /// An error in place of an answer. It can come with status 200.
    #[serde(borrow, default)]
    pub(crate) error: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CompletionChoice<'a> {
    #[serde(default)]
    pub(crate) index: u32,
    #[serde(borrow, default, alias = "delta")]
    pub(crate) message: CompletionMessage<'a>,
    /// The reason of the end: `stop`, `length`, `tool_calls`, `content_filter`, `abort`, ….
    #[serde(borrow, default)]
    pub(crate) finish_reason: Option<Cow<'a, str>>,
    /// The stop string (text) or stop token id (number) that ended the answer.
    #[serde(default)]
    pub(crate) stop_reason: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct CompletionMessage<'a> {
    #[serde(borrow, default)]
    pub(crate) content: Option<Cow<'a, str>>,
    /// The reasoning text. Its name is `reasoning` since vLLM 0.12, and `reasoning_content` before and in other
    /// servers.
    #[serde(borrow, default, alias = "reasoning_content")]
    pub(crate) reasoning: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) tool_calls: Option<Vec<ToolCall<'a>>>,
}

/// A tool call. In a stream, the first part of a call has the id and the name, and every part has a piece of the
/// arguments.
#[derive(Debug, Deserialize)]
pub(crate) struct ToolCall<'a> {
    /// The number of the call among parallel calls. It is only present in streams.
    #[serde(default)]
    pub(crate) index: u32,
    #[serde(borrow, default)]
    pub(crate) id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) function: Function<'a>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Function<'a> {
    #[serde(borrow, default)]
    pub(crate) name: Option<Cow<'a, str>>,
    /// JSON text, or a piece of JSON text in a stream.
    #[serde(borrow, default)]
    pub(crate) arguments: Option<Cow<'a, str>>,
}

/// The token counts of the whole call.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Usage {
    #[serde(default)]
    pub(crate) prompt_tokens: u64,
    #[serde(default)]
    pub(crate) completion_tokens: u64,
    /// Only servers with `--enable-prompt-tokens-details` send these.
    #[serde(default)]
    pub(crate) prompt_tokens_details: Option<PromptDetails>,
    /// Only servers with a reasoning parser send these, since vLLM 0.32.
    #[serde(default)]
    pub(crate) completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct CompletionDetails {
    #[serde(default)]
    pub(crate) reasoning_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct PromptDetails {
    #[serde(default)]
    pub(crate) cached_tokens: Option<u64>,
}

impl ChatCompletion<'_> {
    /// Returns the id without vLLM's prefix. Other dialects add their own prefixes.
    pub(crate) fn stem(&self) -> &str {
        self.id.strip_prefix("chatcmpl-").unwrap_or(&self.id)
    }
}

impl Usage {
    /// Returns the number of prompt tokens from the prefix cache, or 0 if the server does not state it.
    pub(crate) fn cached_tokens(&self) -> u64 {
        self.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0)
    }

    /// Returns the number of sampled tokens that are reasoning, or 0 if the server does not state it.
    pub(crate) fn reasoning_tokens(&self) -> u64 {
        self.completion_tokens_details.and_then(|details| details.reasoning_tokens).unwrap_or(0)
    }
}

/// The length of a list, whose items are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Length(pub(crate) usize);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counting;
        impl<'de> serde::de::Visitor<'de> for Counting {
            type Value = Length;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Length, A::Error> {
                let mut length = 0;
                // The ids are skipped: a long prompt has many thousands.
                while list.next_element::<serde::de::IgnoredAny>()?.is_some() {
                    length += 1;
                }
                Ok(Length(length))
            }
        }
        deserializer.deserialize_seq(Counting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_and_a_whole_answer_read_alike() {
        let chunk: ChatCompletion<'_> = serde_json::from_str(
            r#"{"id":"c","created":1,"prompt_token_ids":[1,2,3],"choices":[{"index":0,"delta":{"reasoning_content":"a\n",
               "tool_calls":[{"index":1,"id":"t","function":{"name":"f","arguments":"{\"a\""}}]},"finish_reason":null}]}"#,
        )
        .unwrap();
        assert_eq!(chunk.prompt_token_ids, Some(Length(3)));
        assert_eq!(chunk.choices[0].message.reasoning.as_deref(), Some("a\n"));
        let whole: ChatCompletion<'_> = serde_json::from_str(
            r#"{"choices":[{"message":{"role":"assistant","content":"x","reasoning":null,"tool_calls":[]}}],
               "usage":{"prompt_tokens":4,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}},"prompt_token_ids":null}"#,
        )
        .unwrap();
        assert_eq!(whole.choices[0].message.content.as_deref(), Some("x"));
        assert_eq!(whole.usage.unwrap().cached_tokens(), 3);
    }
}

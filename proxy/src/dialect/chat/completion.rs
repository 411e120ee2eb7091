//! What upstream says, as the translated dialects read it: a chat answer or a chunk of one, typed.
//!
//! Ids and logprobs are not among it: they are recorded from the raw text ([`super::answer`]) and no translated dialect
//! has a place for them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A whole answer (`message`) or a chunk of a stream (`delta`).
#[derive(Debug, Deserialize)]
pub(crate) struct ChatCompletion<'a> {
    /// vLLM's `chatcmpl-…`.
    #[serde(borrow, default)]
    pub(crate) id: Cow<'a, str>,
    /// Unix seconds.
    #[serde(default)]
    pub(crate) created: u64,
    #[serde(borrow, default)]
    pub(crate) choices: Vec<CompletionChoice<'a>>,
    /// In a stream: only in a chunk of its own behind the last choice, where `stream_options.include_usage` asked.
    #[serde(default)]
    pub(crate) usage: Option<Usage>,
    /// In the first chunk of a stream, or in the whole answer. Only how many there are matters here.
    #[serde(default)]
    pub(crate) prompt_token_ids: Option<Length>,
    /// In the place of all else, also where the status is 200.
    #[serde(borrow, default)]
    pub(crate) error: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CompletionChoice<'a> {
    #[serde(default)]
    pub(crate) index: u32,
    #[serde(borrow, default, alias = "delta")]
    pub(crate) message: CompletionMessage<'a>,
    /// `stop`, `length`, `tool_calls`, `content_filter`, `abort`, ….
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
    /// vLLM's name since 0.12 is `reasoning`; before, and elsewhere, `reasoning_content`.
    #[serde(borrow, default, alias = "reasoning_content")]
    pub(crate) reasoning: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) tool_calls: Option<Vec<ToolCall<'a>>>,
}

/// In a stream: the first part of a call has id and name, all of them a piece of the arguments.
#[derive(Debug, Deserialize)]
pub(crate) struct ToolCall<'a> {
    /// Which of the parallel calls; only streams say.
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
    /// JSON text, or a piece of it.
    #[serde(borrow, default)]
    pub(crate) arguments: Option<Cow<'a, str>>,
}

/// Token counts of the whole call.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Usage {
    #[serde(default)]
    pub(crate) prompt_tokens: u64,
    #[serde(default)]
    pub(crate) completion_tokens: u64,
    /// Only of servers with `--enable-prompt-tokens-details`.
    #[serde(default)]
    pub(crate) prompt_tokens_details: Option<PromptDetails>,
    /// Only of servers with a reasoning parser, since vLLM 0.32.
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
    /// What is the answer's own in its name: other dialects put their own prefix before it.
    pub(crate) fn stem(&self) -> &str {
        self.id.strip_prefix("chatcmpl-").unwrap_or(&self.id)
    }
}

impl Usage {
    /// Prompt tokens that were read from the prefix cache, as far as the server says.
    pub(crate) fn cached_tokens(&self) -> u64 {
        self.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0)
    }

    /// Sampled tokens that are reasoning, as far as the server says.
    pub(crate) fn reasoning_tokens(&self) -> u64 {
        self.completion_tokens_details.and_then(|details| details.reasoning_tokens).unwrap_or(0)
    }
}

/// The number of a list's members.
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

//! The JSON of whole answers and of stream events.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::dialect::chat::completion::Usage;

/// A whole answer, or the empty message at the start of a stream.
#[derive(Debug, Serialize)]
pub(super) struct MessageEnvelope<'a> {
    pub(super) id: &'a str,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) role: &'static str,
    pub(super) model: &'a str,
    pub(super) content: Vec<BlockContent<'a>>,
    pub(super) stop_reason: Option<&'static str>,
    pub(super) stop_sequence: Option<&'a str>,
    pub(super) usage: TokenUsage,
}

/// A block of an answer. At its start in a stream, the block is empty.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum BlockContent<'a> {
    Thinking { thinking: &'a str, signature: &'a str },
    Text { text: &'a str },
    ToolUse { id: &'a str, name: &'a str, input: &'a RawValue },
}

/// The token counts. `input_tokens` excludes tokens from the prefix cache.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct TokenUsage {
    input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    output_tokens: u64,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Event<'a> {
    MessageStart { message: MessageEnvelope<'a> },
    ContentBlockStart { index: u32, content_block: BlockContent<'a> },
    ContentBlockDelta { index: u32, delta: Piece<'a> },
    ContentBlockStop { index: u32 },
    MessageDelta { delta: Ending<'a>, usage: TokenUsage },
    MessageStop,
    Error { error: Fault<'a> },
}

#[derive(Debug, Serialize)]
#[serde(tag = "type")]
pub(super) enum Piece<'a> {
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: &'a str },
    #[serde(rename = "signature_delta")]
    Signature { signature: &'a str },
    #[serde(rename = "text_delta")]
    Text { text: &'a str },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: &'a str },
}

#[derive(Debug, Serialize)]
pub(super) struct Ending<'a> {
    pub(super) stop_reason: &'static str,
    pub(super) stop_sequence: Option<&'a str>,
}

#[derive(Debug, Serialize)]
pub(super) struct Fault<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) message: &'a str,
}

impl Event<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
            Self::Error { .. } => "error",
        }
    }

    /// Appends the event to a stream.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(self.name().as_bytes());
        out.extend_from_slice(b"\ndata: ");
        // Serialization of these types cannot fail, and the JSON has no line feeds, so it fits in one data line.
        serde_json::to_writer(&mut *out, self).ok();
        out.extend_from_slice(b"\n\n");
    }
}

impl TokenUsage {
    pub(super) fn of_prompt(tokens: u64) -> Self {
        Self { input_tokens: tokens, ..Self::default() }
    }
}

impl From<Usage> for TokenUsage {
    fn from(usage: Usage) -> Self {
        Self {
            // vLLM counts cached tokens in `prompt_tokens`, and Anthropic counts them separately.
            input_tokens: usage.prompt_tokens.saturating_sub(usage.cached_tokens()),
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: usage.cached_tokens(),
            output_tokens: usage.completion_tokens,
        }
    }
}

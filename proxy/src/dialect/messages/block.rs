//! Reads the content blocks of a turn.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::members::{read, refusal};
use crate::dialect::bad_request::BadRequest;

/// One block, of the kinds that can be translated to a chat request.
#[derive(Debug)]
pub(super) enum Block<'a> {
    Text(Cow<'a, str>),
    /// A URL that vLLM fetches, or a `data:` URL.
    Image(String),
    Thinking(Cow<'a, str>),
    /// Encrypted thinking, which only Anthropic's servers can read.
    RedactedThinking,
    ToolUse(ToolUse<'a>),
    ToolResult {
        id: Cow<'a, str>,
        content: Vec<Block<'a>>,
    },
}

#[derive(Debug, Deserialize)]
pub(super) struct ToolUse<'a> {
    #[serde(borrow)]
    pub(super) id: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    /// A JSON object in the agent's spelling.
    #[serde(borrow)]
    pub(super) input: &'a RawValue,
}

#[derive(Deserialize)]
struct BlockKind<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Text<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Thinking<'a> {
    #[serde(borrow)]
    thinking: Cow<'a, str>,
}

#[derive(Deserialize)]
struct ToolResult<'a> {
    #[serde(borrow)]
    tool_use_id: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Sourced<'a> {
    #[serde(borrow)]
    source: MediaSource<'a>,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    context: Option<String>,
}

/// The source of an image or a document.
#[derive(Deserialize)]
struct MediaSource<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    data: Option<String>,
    #[serde(default)]
    url: Option<String>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

/// Reads the content of a turn. A string counts as one block of text.
pub(super) fn blocks<'a>(content: &'a RawValue, place: &str) -> Result<Vec<Block<'a>>, BadRequest> {
    if content.get().starts_with('"') {
        return Ok(vec![Block::Text(read::<Str<'a>>(content, place)?.0)]);
    }
    let blocks: Vec<&'a RawValue> = read(content, place)?;
    blocks.into_iter().enumerate().map(|(at, raw)| block(raw, &format!("{place}[{at}]"))).collect()
}

/// A string, borrowed if it has no escapes.
#[derive(Deserialize)]
pub(super) struct Str<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

fn block<'a>(raw: &'a RawValue, place: &str) -> Result<Block<'a>, BadRequest> {
    let BlockKind { kind } = read(raw, place)?;
    Ok(match kind.as_ref() {
        "text" => Block::Text(read::<Text<'a>>(raw, place)?.text),
        "image" => Block::Image(image(read(raw, place)?, place)?),
        "document" => Block::Text(document(read(raw, place)?, place)?.into()),
        "thinking" => Block::Thinking(read::<Thinking<'a>>(raw, place)?.thinking),
        "redacted_thinking" => Block::RedactedThinking,
        "tool_use" => Block::ToolUse(tool_use(raw, place)?),
        "tool_result" => tool_result(raw, place)?,
        "tool_reference" => {
            return Err(refusal(
                place,
                "is a tool_reference: switch tool search off (ENABLE_TOOL_SEARCH=false)",
            ));
        }
        other => {
            let fault = format!(
                "is a block of type {other:?}, which cannot be carried to the model: text, image, document (of text), \
                 thinking, redacted_thinking, tool_use and tool_result can"
            );
            return Err(refusal(place, &fault));
        }
    })
}

fn tool_use<'a>(raw: &'a RawValue, place: &str) -> Result<ToolUse<'a>, BadRequest> {
    let tool_use: ToolUse<'a> = read(raw, place)?;
    // Chat templates read the arguments as an object, so other JSON is rejected here.
    if !tool_use.input.get().starts_with('{') {
        return Err(refusal(&format!("{place}.input"), "is not an object"));
    }
    Ok(tool_use)
}

fn tool_result<'a>(raw: &'a RawValue, place: &str) -> Result<Block<'a>, BadRequest> {
    let ToolResult { tool_use_id, content } = read(raw, place)?;
    let place = format!("{place}.content");
    let content = content.map(|content| blocks(content, &place)).transpose()?.unwrap_or_default();
    // vLLM's chat messages cannot express other blocks in a tool result.
    for (at, block) in content.iter().enumerate() {
        if !matches!(block, Block::Text(_) | Block::Image(_)) {
            return Err(refusal(
                &format!("{place}[{at}]"),
                "cannot stand in a tool result: text and images can",
            ));
        }
    }
    Ok(Block::ToolResult { id: tool_use_id, content })
}

fn image(Sourced { source, .. }: Sourced<'_>, place: &str) -> Result<String, BadRequest> {
    match (source.kind.as_str(), source.url, source.data) {
        ("url", Some(url), _) => Ok(url),
        ("base64", _, Some(data)) => {
            // Anthropic requires `media_type`. The default is that of vLLM.
            let media_type = source.media_type.as_deref().unwrap_or("image/jpeg");
            Ok(format!("data:{media_type};base64,{data}"))
        }
        _ => Err(refusal(
            &format!("{place}.source"),
            "is neither base64 data nor a url: send the image in one of these",
        )),
    }
}

/// Returns the text of a document, after its title and context if it has them.
fn document(document: Sourced<'_>, place: &str) -> Result<String, BadRequest> {
    let place = format!("{place}.source");
    let text = match (document.source.kind.as_str(), document.source.data, document.source.content) {
        ("text", Some(data), _) => data,
        ("content", _, Some(content)) => texts(blocks(content, &place)?, &place)?.join("\n"),
        (kind, ..) => {
            let fault = format!(
                "is a document of type {kind:?}: only its text can be carried to the model, as type \"text\""
            );
            return Err(refusal(&place, &fault));
        }
    };
    Ok([document.title, document.context, Some(text)].into_iter().flatten().collect::<Vec<_>>().join("\n"))
}

/// Returns the texts of blocks. Returns an error if any block is not text.
pub(super) fn texts<'a>(blocks: Vec<Block<'a>>, place: &str) -> Result<Vec<Cow<'a, str>>, BadRequest> {
    let text = |block| match block {
        Block::Text(text) => Ok(text),
        _ => Err(refusal(place, "has a block that is not text: only text can stand here")),
    };
    blocks.into_iter().map(text).collect()
}

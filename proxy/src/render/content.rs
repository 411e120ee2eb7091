//! The content of a message: one text, or a list of parts.

use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::RenderError;
use super::value::to_value;

/// Claude Code's attribution line, which changes with every request. vLLM drops it from system messages.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Members of parts that vLLM knows and does not pass on to the template (`_KNOWN_CONTENT_PART_FIELDS`).
const KNOWN_MEMBERS: [&str; 18] = [
    "audio_embeds",
    "audio_url",
    "closed",
    "data",
    "file",
    "image_embeds",
    "image_pil",
    "image_url",
    "input_audio",
    "name",
    "prompt_cache_breakpoint",
    "refusal",
    "text",
    "thinking",
    "type",
    "uuid",
    "video_embeds",
    "video_url",
];

/// The parts of a message's content, in order.
pub(super) struct MessageContent<'m>(Vec<ContentPart<'m>>);

enum ContentPart<'m> {
    Text {
        text: &'m str,
        /// The original part, for members that only the template knows.
        whole: Option<&'m Map<String, Json>>,
    },
    /// A tool that the template spells out.
    ToolReference(&'m str),
}

impl<'m> MessageContent<'m> {
    /// Reads a message's content. Removes the billing header if `is_of_system`.
    pub(super) fn read(content: Option<&'m Json>, is_of_system: bool) -> Result<Self, RenderError> {
        let mut parts = match content {
            None | Some(Json::Null) => Vec::new(),
            Some(Json::String(text)) => vec![ContentPart::Text { text, whole: None }],
            Some(Json::Array(parts)) => parts
                .iter()
                .filter_map(|part| ContentPart::read(part).transpose())
                .collect::<Result<_, _>>()?,
            Some(_) => return Err(unreadable("it is neither a text nor a list")),
        };
        if is_of_system {
            parts = parts.into_iter().filter_map(ContentPart::without_billing_header).collect();
        }
        Ok(Self(parts))
    }

    /// Returns the content as one text, for templates that read text.
    pub(super) fn text(&self) -> Value {
        match self.0.as_slice() {
            [] => Value::from(""),
            [one] => Value::from(one.text()),
            several => Value::from(several.iter().map(ContentPart::text).collect::<Vec<_>>().join("\n")),
        }
    }

    /// Returns the content as a list, for templates that read parts.
    pub(super) fn parts(&self) -> Result<Value, RenderError> {
        Ok(Value::from(self.0.iter().map(ContentPart::value).collect::<Result<Vec<_>, _>>()?))
    }

    /// Returns the content of a tool's result. Most templates read only text here, so a list of texts is joined for
    /// every template.
    pub(super) fn tool_parts(&self) -> Result<Value, RenderError> {
        let is_text = self.0.iter().all(|part| matches!(part, ContentPart::Text { .. }));
        if is_text { Ok(self.text()) } else { self.parts() }
    }
}

impl<'m> ContentPart<'m> {
    /// Reads a part. Returns `None` for a part that vLLM skips.
    fn read(part: &'m Json) -> Result<Option<Self>, RenderError> {
        let whole = match part {
            Json::String(text) => return Ok(Some(Self::Text { text, whole: None })),
            Json::Object(whole) => whole,
            _ => return Err(unreadable("a part is neither a text nor an object")),
        };
        let Some(Json::String(kind)) = whole.get("type") else {
            return Err(unreadable("a part has no type"));
        };
        // A `uuid` refers to media in the server's cache.
        if whole.get("uuid").is_some_and(|uuid| !uuid.is_null()) {
            return Err(RenderError::Media(kind.clone()));
        }
        let member = match kind.as_str() {
            "text" | "input_text" | "output_text" => "text",
            "thinking" => "thinking",
            "refusal" => "refusal",
            "tool_reference" => "name",
            _ => return Err(RenderError::Media(kind.clone())),
        };
        match whole.get(member) {
            Some(Json::String(name)) if kind == "tool_reference" => Ok(Some(Self::ToolReference(name))),
            Some(Json::String(text)) => Ok(Some(Self::Text { text, whole: Some(whole) })),
            None | Some(Json::Null) if matches!(kind.as_str(), "text" | "refusal") => Ok(None),
            _ => Err(unreadable("a part lacks its text")),
        }
    }

    /// Removes the billing header. Returns `None` if nothing else remains. Only parts of type `text` are examined.
    fn without_billing_header(self) -> Option<Self> {
        match self {
            Self::Text { text, whole } if text.starts_with(BILLING_HEADER) && is_plain(whole) => {
                let (_, rest) = text.split_once('\n')?;
                (!rest.is_empty()).then_some(Self::Text { text: rest, whole })
            }
            other => Some(other),
        }
    }

    fn text(&self) -> &'m str {
        match self {
            Self::Text { text, .. } | Self::ToolReference(text) => text,
        }
    }

    fn value(&self) -> Result<Value, RenderError> {
        let Self::Text { text, whole } = self else {
            let members = [("type", Value::from("tool_reference")), ("name", Value::from(self.text()))];
            return Ok(Value::from_pairs(members));
        };
        let mut members = vec![("type", Value::from("text")), ("text", Value::from(*text))];
        for (key, value) in whole.iter().flat_map(|whole| whole.iter()) {
            if !KNOWN_MEMBERS.contains(&key.as_str()) {
                members.push((key, to_value(value)?));
            }
        }
        Ok(Value::from_pairs(members))
    }
}

fn is_plain(whole: Option<&Map<String, Json>>) -> bool {
    whole.is_none_or(|whole| whole.get("type").is_some_and(|kind| kind == "text"))
}

/// Returns a text as a list of one part.
pub(super) fn one_part(text: &str) -> Value {
    let part = Value::from_pairs([("type", Value::from("text")), ("text", Value::from(text))]);
    Value::from(vec![part])
}

fn unreadable(why: &'static str) -> RenderError {
    RenderError::unreadable("content", why)
}

/// Returns the text of content that a template reads. The texts of parts are joined by newlines.
pub(super) fn text_of(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let parts = content.try_iter().into_iter().flatten();
    let texts: Vec<String> =
        parts.filter_map(|part| part.get_attr("text").ok()?.as_str().map(str::to_owned)).collect();
    texts.join("\n")
}

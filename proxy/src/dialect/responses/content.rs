//! Translates the content of messages and tool results to chat's form.

use serde_json::{Value, json};

use super::reading::{RequestObject, wrong_type};
use crate::dialect::bad_request::BadRequest;

/// Translates the content at a key of an item: a string, or a list of parts. A single text part becomes a plain string,
/// the form that chat templates handle best. The template joins several parts.
pub(super) fn content(item: &RequestObject<'_>, key: &str) -> Result<Value, BadRequest> {
    match item.get(key) {
        None => Ok(Value::String(String::new())),
        Some(Value::String(text)) => Ok(Value::String(text.clone())),
        Some(Value::Array(_)) => {
            let parts = item.members(key)?.map(|(value, at)| part(&RequestObject::of(value, at)?));
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            Ok(match parts.as_slice() {
                [] => Value::String(String::new()),
                // A single part without text, such as an image, remains a list.
                [only] => only.get("text").cloned().unwrap_or(Value::Array(parts)),
                _ => Value::Array(parts),
            })
        }
        Some(other) => Err(wrong_type(item.at(key), "a string or a list of parts", other)),
    }
}

fn part(part: &RequestObject<'_>) -> Result<Value, BadRequest> {
    match part.text("type")? {
        "input_text" | "output_text" | "text" => Ok(json!({"type": "text", "text": part.text("text")?})),
        "refusal" => Ok(json!({"type": "text", "text": part.text("refusal")?})),
        "input_image" => image(part),
        "input_audio" => {
            let audio = part.get("input_audio").cloned().unwrap_or_default();
            Ok(json!({"type": "input_audio", "input_audio": audio}))
        }
        "input_file" => Err(part.refuse("files are not read here: put their text into an input_text part")),
        other => Err(part.refuse(format_args!(
            "content of type {other:?} cannot be carried over: send input_text, output_text, input_image or input_audio"
        ))),
    }
}

fn image(part: &RequestObject<'_>) -> Result<Value, BadRequest> {
    let Some(url) = part.optional_text("image_url")? else {
        return Err(
            part.refuse("there is no image_url: images by file_id are not stored here, send a data: URL")
        );
    };
    let mut image_url = json!({"url": url});
    if let (Some(detail), Some(fields)) = (part.optional_text("detail")?, image_url.as_object_mut()) {
        fields.insert("detail".to_owned(), detail.into());
    }
    Ok(json!({"type": "image_url", "image_url": image_url}))
}

//! Finds images, audio and video in a chat request, and checks their source.

use serde_json::value::RawValue;

use crate::dialect::bad_request::BadRequest;
use crate::wire::json_edit::Object;
use crate::wire::json_scan::Cursor;

/// Whether requests may contain media that the engine would have to fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fetching {
    /// Only media within the request (`data:` URLs) are allowed. The agent must not reach the engine's network.
    #[default]
    Refused,
    /// All media are allowed that the engine is willing to fetch.
    Allowed,
}

/// The types of content parts that are text. The prompt has placeholders for all other types.
const TEXT_PARTS: [&str; 6] = ["text", "input_text", "output_text", "refusal", "thinking", "tool_reference"];

/// Whether any message has a part that is not text. Parts of unusual form count as media.
///
/// # Errors
/// Returns an error if such a part has a `uuid`, or a URL that the engine would have to fetch and may not.
pub(crate) fn in_messages(messages: &str, fetching: Fetching) -> Result<bool, BadRequest> {
    let mut looked = Looked { fetching, found: false, fault: None };
    // The fast scanner rejects unusual forms, such as keys with escapes.
    let is_plain = looked.quickly(messages).is_some();
    if !is_plain {
        looked.thoroughly(messages);
    }
    match looked.fault {
        Some(fault) => Err(fault),
        None => Ok(looked.found || (!is_plain && has_names(messages))),
    }
}

struct Looked {
    fetching: Fetching,
    found: bool,
    fault: Option<BadRequest>,
}

impl Looked {
    fn quickly(&mut self, messages: &str) -> Option<()> {
        let mut cursor = Cursor::new(messages);
        cursor.array(|cursor| {
            if !cursor.is_at_object() {
                return cursor.value().map(drop);
            }
            cursor.object(|cursor, key| {
                if key != "content" || !cursor.is_at_array() {
                    return cursor.value().map(drop);
                }
                cursor.array(|cursor| {
                    self.part(cursor.value()?);
                    Some(())
                })
            })
        })
    }

    fn thoroughly(&mut self, messages: &str) {
        for message in list(messages) {
            let Ok(message) = Object::scan(message.get()) else { continue };
            for part in message.get("content").map(list).unwrap_or_default() {
                self.part(part.get());
            }
        }
    }

    fn part(&mut self, part: &str) {
        let Ok(part) = Object::scan(part) else {
            // A plain string is text. Anything else that is not an object has an unknown meaning.
            self.found |= !part.starts_with('"');
            return;
        };
        if part.get_as::<String>("type").is_some_and(|kind| TEXT_PARTS.contains(&kind.as_str())) {
            return;
        }
        self.found = true;
        // The first fault is reported. Later parts are still counted as media.
        if self.fault.is_none() {
            self.fault = fault(&part, self.fetching);
        }
    }
}

/// Returns the fault of a part that is not text, if any.
fn fault(part: &Object<'_>, fetching: Fetching) -> Option<BadRequest> {
    // The engine caches processed media under this name for all callers, so trials would share the name.
    if part.has("uuid") {
        let message =
            "a content part has a uuid, a name under which the engine would keep it for others: leave it out";
        return Some(BadRequest::at("messages", message));
    }
    if fetching == Fetching::Allowed {
        return None;
    }
    let is_link = |(key, value): (&str, &str)| key.ends_with("url") && !is_inline(value);
    part.members().any(is_link).then(|| {
        let message = "a content part names a URL for the inference server to fetch, which this proxy does not allow \
                       (--allow-media-urls): send the content itself, as a data: URL";
        BadRequest::at("messages", message)
    })
}

/// Whether the value of a `…url` key contains no URL to fetch: it is a `data:` URL, `null`, or an object without such a
/// URL.
fn is_inline(value: &str) -> bool {
    if let Ok(object) = Object::scan(value) {
        return object.members().all(|(key, value)| key != "url" || is_inline_text(value));
    }
    is_inline_text(value)
}

fn is_inline_text(value: &str) -> bool {
    const SCHEME: &str = "data:";
    let begins =
        |text: &str| text.get(..SCHEME.len()).is_some_and(|start| start.eq_ignore_ascii_case(SCHEME));
    // The plain form is checked first, because the value may be megabytes long.
    value == "null"
        || value.strip_prefix('"').is_some_and(begins)
        || serde_json::from_str::<String>(value).is_ok_and(|url| begins(&url))
}

fn list(text: &str) -> Vec<&RawValue> {
    serde_json::from_str(text).unwrap_or_default()
}

/// Checks messages of unusual form for typical names of media parts. Servers probably reject such messages anyway.
fn has_names(messages: &str) -> bool {
    let is_list = Cursor::new(messages).array(|cursor| cursor.value().map(drop)).is_some();
    let names = ["image_", "input_image", "audio_", "input_audio", "video_"];
    let has = |name: &str| memchr::memmem::find(messages.as_bytes(), name.as_bytes()).is_some();
    !is_list && names.into_iter().any(has)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn content(part: &Value) -> String {
        json!([{"role": "user", "content": [part]}]).to_string()
    }

    #[test]
    fn images_are_seen_and_talk_of_images_is_not() {
        let found = |messages: &Value| in_messages(&messages.to_string(), Fetching::Allowed).unwrap();
        assert!(found(&json!([{"content": [{"type": "image_url", "image_url": {"url": "x"}}]}])));
        assert!(found(&json!([{"content": [{"image_url": {"url": "x"}}]}])));
        assert!(found(&json!([{"content": [7]}])));
        assert!(!found(&json!([
            {"content": "image_url"},
            {"content": ["image_url", {"type": "text", "text": "\"image_url\""}]},
        ])));
        assert!(!found(&json!({})));
        assert!(in_messages(r#"{"c\u006fntent":"image_url"}"#, Fetching::Refused).unwrap());
    }

    #[test]
    fn what_would_be_fetched_is_refused_in_every_spelling() {
        for part in [
            json!({"type": "image_url", "image_url": {"url": "http://h"}}),
            json!({"type": "image_url", "image_url": "file:///x"}),
            json!({"image_url": {"url": "data:x", "detail": "low"}, "video_url": " data:x"}),
            json!({"type": "audio_url", "audio_url": {"url": "//data:"}}),
        ] {
            assert!(in_messages(&content(&part), Fetching::Refused).is_err(), "{part}");
            assert_eq!(in_messages(&content(&part), Fetching::Allowed), Ok(true), "{part}");
        }
        let escaped = r#"[{"c\u006fntent":[{"im\u0061ge_url":{"url":"data:,","u\u0072l":"http:"}}]}]"#;
        assert!(in_messages(escaped, Fetching::Refused).is_err());
    }

    #[test]
    fn what_the_request_holds_itself_is_taken() {
        for part in [
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "high"}}),
            json!({"type": "image_url", "image_url": "DATA:image/png;base64,AA"}),
            json!({"type": "input_audio", "input_audio": {"data": "http://", "format": "wav"}, "uuid": null}),
        ] {
            assert_eq!(in_messages(&content(&part), Fetching::Refused), Ok(true), "{part}");
        }
        let escaped = r#"[{"content":[{"image_url":"\u0064ata:,"}]}]"#;
        assert_eq!(in_messages(escaped, Fetching::Refused), Ok(true));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".*") {
            let _ = in_messages(&text, Fetching::Refused);
        }

        #[test]
        fn only_what_begins_with_data_is_inline(url in "(data:|DATA:|http:|)[ -~]{0,8}") {
            let part = json!({"type": "image_url", "image_url": {"url": url}});
            let is_inline = url.to_lowercase().starts_with("data:");
            prop_assert_eq!(in_messages(&content(&part), Fetching::Refused).is_ok(), is_inline);
        }
    }
}

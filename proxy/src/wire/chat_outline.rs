//! The members and messages of a chat request as slices of its text. One scan serves all of its readers.

use crate::wire::json_edit::Object;
use crate::wire::json_scan::Cursor;

/// A scanned chat request.
pub(crate) struct ChatOutline<'a> {
    pub(crate) object: Object<'a>,
    /// The text of each message. `None` if `messages` is not a list.
    pub(crate) messages: Option<Vec<&'a str>>,
}

impl<'a> ChatOutline<'a> {
    /// Scans a request, which must be a JSON object.
    pub(crate) fn scan(text: &'a str) -> Result<Self, serde_json::Error> {
        let (object, messages) = Object::scan_with_items(text, "messages")?;
        Ok(Self { object, messages })
    }

    /// Whether `tools` is a list with at least one item.
    pub(crate) fn has_tools(&self) -> bool {
        let list = self.object.get("tools").and_then(|tools| tools.strip_prefix('['));
        list.is_some_and(|items| !items.trim_start().starts_with(']'))
    }
}

/// Returns the role of a message as JSON text, or `None` if it has no role or an unusual form.
pub(crate) fn role_of(message: &str) -> Option<&str> {
    // Nearly all clients write the role first, so the content is not scanned.
    if let Some(rest) = message.strip_prefix(r#"{"role":"#)
        && let Some(role) = Cursor::new(rest).value()
    {
        return Some(role);
    }
    member(message, "role")
}

/// Returns the content of a message as JSON text, or `None` if it has no content or an unusual form.
pub(crate) fn content_of(message: &str) -> Option<&str> {
    member(message, "content")
}

fn member<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    let mut found = None;
    Cursor::new(message).object(|cursor, key| {
        let value = cursor.value()?;
        if key == name {
            found = Some(value);
        }
        Some(())
    })?;
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn messages_are_found_in_every_spelling_of_their_name() {
        for text in [r#"{"messages":[{"role":"user"}, 7 ]}"#, r#"{"m\u0065ssages": [{"role":"user"}, 7 ]}"#] {
            let outline = ChatOutline::scan(text).unwrap();
            assert_eq!(outline.messages.unwrap(), [r#"{"role":"user"}"#, "7"]);
            assert_eq!(outline.object.get("messages"), Some(r#"[{"role":"user"}, 7 ]"#));
        }
        let last = ChatOutline::scan(r#"{"messages":[1],"messages":"x"}"#).unwrap();
        assert_eq!(last.messages, None, "the last of several values counts");
        assert!(ChatOutline::scan("[]").is_err());
    }

    #[test]
    fn an_empty_list_of_tools_is_no_tool() {
        for (text, has_tools) in [
            (r#"{"tools":[ ]}"#, false),
            (r#"{"tools":null}"#, false),
            ("{}", false),
            (r#"{"tools":[{}]}"#, true),
        ] {
            assert_eq!(ChatOutline::scan(text).unwrap().has_tools(), has_tools, "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_outline_has_the_values_of_serde(
            messages in prop::collection::vec((prop::sample::select(&["user", "system", "tool"][..]), ".{0,9}"), 0..4),
            model in ".{0,5}",
            pretty in any::<bool>(),
            role_first in any::<bool>(),
        ) {
            let message = |(role, content): &(&str, String)| {
                if role_first { json!({"role": role, "content": content}) } else { json!({"content": content, "role": role}) }
            };
            let messages: Vec<Value> = messages.iter().map(message).collect();
            let request = json!({"model": model, "messages": messages, "stream": true});
            let text = if pretty { serde_json::to_string_pretty(&request).unwrap() } else { request.to_string() };
            let outline = ChatOutline::scan(&text).unwrap();
            let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            let found: Vec<Value> = outline.messages.unwrap().into_iter().inspect(|message| {
                let whole = read(message);
                assert_eq!(read(role_of(message).unwrap()), whole["role"]);
                assert_eq!(read(content_of(message).unwrap()), whole["content"]);
            }).map(read).collect();
            prop_assert_eq!(found, messages);
            prop_assert_eq!(read(outline.object.get("model").unwrap()), request["model"].clone());
        }

        #[test]
        fn arbitrary_text_never_panics(text in r#"(\{"messages":\[)?.{0,40}"#) {
            let _ = ChatOutline::scan(&text).map(|outline| outline.has_tools());
            let _ = (role_of(&text), content_of(&text));
        }
    }
}

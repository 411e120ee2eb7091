//! Locates the texts of a chat request that rules examine, without decoding the other texts.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;

use crate::wire::json_scan::Cursor;

/// The located texts, as the JSON values of the request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Texts<'a> {
    /// Whether `tools` is a list with at least one item.
    pub(super) has_tools: bool,
    /// The content of the first system or developer message. Translated requests have no other.
    pub(super) system: Option<&'a str>,
    pub(super) first_user: Option<&'a str>,
    pub(super) last_user: Option<&'a str>,
}

impl<'a> Texts<'a> {
    /// Locates the texts. Returns `None` for a request of unusual form, so that no rule on texts fits it.
    pub(super) fn of(request: &'a str) -> Option<Self> {
        let mut texts = Self::default();
        Cursor::new(request).object(|cursor, key| match key {
            "messages" if cursor.is_at_array() => cursor.array(|cursor| texts.message(cursor)),
            "tools" if cursor.is_at_array() => cursor.array(|cursor| {
                texts.has_tools = true;
                cursor.value().map(drop)
            }),
            _ => cursor.value().map(drop),
        })?;
        Some(texts)
    }

    fn message(&mut self, cursor: &mut Cursor<'a>) -> Option<()> {
        let (mut role, mut content) = (None, None);
        cursor.object(|cursor, key| {
            let value = cursor.value()?;
            match key {
                "role" => role = Some(value),
                "content" => content = Some(value),
                _ => {}
            }
            Some(())
        })?;
        match role {
            Some(r#""system""# | r#""developer""#) => self.system = self.system.or(content),
            Some(r#""user""#) => {
                // Later messages replace `last_user`, and only the first one sets `first_user`.
                self.first_user = self.first_user.or(content);
                self.last_user = content;
            }
            _ => {}
        }
        Some(())
    }
}

/// A text that rules search in the content of messages.
#[derive(Clone, Debug)]
pub(super) struct Needle {
    text: String,
    /// The longest part of the text that no JSON writer escapes. Programs differ in which characters they escape.
    plain: String,
}

/// One part of a message's content. Parts without text, such as images, have no `text`.
#[derive(Deserialize)]
struct TextPart<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
}

impl Needle {
    pub(super) fn new(text: &str) -> Self {
        let may_be_escaped = |c: char| !(c.is_ascii_alphanumeric() || " .,:;()_-".contains(c));
        let plain = text.split(may_be_escaped).max_by_key(|part| part.len()).unwrap_or_default();
        Self { text: text.to_owned(), plain: plain.to_owned() }
    }

    /// Whether the content of a message contains the text. The content is decoded only if it contains the plain part.
    pub(super) fn is_in(&self, content: &str) -> bool {
        // The search in the raw JSON is cheap, and rules out nearly every message.
        if memmem::find(content.as_bytes(), self.plain.as_bytes()).is_none() {
            return false;
        }
        if let Ok(text) = serde_json::from_str::<String>(content) {
            return text.contains(&self.text);
        }
        let parts: Vec<TextPart<'_>> = serde_json::from_str(content).unwrap_or_default();
        parts.iter().filter_map(|part| part.text.as_deref()).any(|text| text.contains(&self.text))
    }
}

//! The texts of a chat request that rules look at, found without reading the others.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;

use crate::wire::json_scan::Cursor;

/// Where the texts are: JSON values as the request has them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Texts<'a> {
    /// Whether there is a list of tools with something in it.
    pub(super) has_tools: bool,
    /// The first system or developer message; translated requests have no other.
    pub(super) system: Option<&'a str>,
    pub(super) first_user: Option<&'a str>,
    pub(super) last_user: Option<&'a str>,
}

impl<'a> Texts<'a> {
    /// Finds them; none in a request of unusual form, of which no rule then says anything.
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
                self.first_user = self.first_user.or(content);
                self.last_user = content;
            }
            _ => {}
        }
        Some(())
    }
}

/// A text that is looked for in the content of messages.
#[derive(Clone, Debug)]
pub(super) struct Needle {
    text: String,
    /// The longest part of it that JSON has as it is, whoever writes it.
    plain: String,
}

/// One part of a message's content; what is no text is passed over.
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

    /// Whether the text stands in a message's content. What does not have its plain part is not read.
    pub(super) fn is_in(&self, content: &str) -> bool {
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

//! Locates the texts of a chat request that rules examine, without decoding the other texts.

use std::borrow::Cow;

use memchr::memmem::Finder;
use serde::Deserialize;

use crate::wire::chat_outline::{ChatOutline, content_of, role_of};

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
    /// Locates the texts. A message of unusual form has no text.
    pub(super) fn of(request: &ChatOutline<'a>) -> Self {
        let messages = request.messages.as_deref().unwrap_or_default();
        let is_user = |message: &&str| role_of(message) == Some(r#""user""#);
        let is_system = |message: &&str| matches!(role_of(message), Some(r#""system""# | r#""developer""#));
        let content = |at: Option<usize>| content_of(messages.get(at?)?);
        let (first, last) = (messages.iter().position(is_user), messages.iter().rposition(is_user));
        let first_user = content(first);
        Self {
            has_tools: request.has_tools(),
            system: content(messages.iter().position(is_system)),
            first_user,
            // A single message of a user may be long, so it is scanned once.
            last_user: if last == first { first_user } else { content(last) },
        }
    }
}

/// A text that rules search in the content of messages.
#[derive(Clone, Debug)]
pub(super) struct Needle {
    text: String,
    /// Finds the longest part of the text that no JSON writer escapes. Programs differ in which characters they escape.
    plain: Finder<'static>,
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
        Self { text: text.to_owned(), plain: Finder::new(plain).into_owned() }
    }

    /// Whether the content of a message contains the text. The content is decoded only if it contains the plain part.
    pub(super) fn is_in(&self, content: &str) -> bool {
        // The search in the raw JSON is cheap, and rules out nearly every message.
        if self.plain.find(content.as_bytes()).is_none() {
            return false;
        }
        if let Ok(text) = serde_json::from_str::<String>(content) {
            return text.contains(&self.text);
        }
        let parts: Vec<TextPart<'_>> = serde_json::from_str(content).unwrap_or_default();
        parts.iter().filter_map(|part| part.text.as_deref()).any(|text| text.contains(&self.text))
    }
}

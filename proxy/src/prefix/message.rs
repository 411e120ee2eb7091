//! A stored chat message: its original text and the results of its analysis.
//!
//! The analysis runs on demand, and most messages never need it. Their text alone identifies a message that the agent
//! sent before.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::fingerprint::Fingerprint;
use super::message_eq::Reading;
use crate::render::renderer::{self, Renderer};
use crate::wire::chat_outline::content_of;

/// A stored message.
#[derive(Debug)]
pub(super) struct StoredMessage {
    text: Arc<str>,
    /// The fingerprint of the text.
    pub(super) as_sent: Fingerprint,
    /// The parsed content. Inner `None` if the text is not a message.
    reading: OnceLock<Option<Reading>>,
    /// The message as the template reads it, computed on first use.
    rendered: OnceLock<Option<renderer::RenderMessage>>,
}

impl StoredMessage {
    /// Creates a message of a request. Returns `None` if the text does not begin like a JSON object: the server reports
    /// that error.
    pub(super) fn of_request(text: &str, as_sent: Fingerprint) -> Option<Self> {
        text.starts_with('{').then(|| Self::new(text.into(), as_sent))
    }

    /// Creates a message from an answer, in the form in which a client would send it back.
    pub(super) fn of_answer(json: String) -> Self {
        let as_sent = Fingerprint::of(&json);
        Self::new(json.into(), as_sent)
    }

    /// Creates a message from the stored text of an answer.
    pub(super) fn kept(text: &Arc<str>) -> Self {
        Self::new(Arc::clone(text), Fingerprint::of(text))
    }

    fn new(text: Arc<str>, as_sent: Fingerprint) -> Self {
        Self { text, as_sent, reading: OnceLock::new(), rendered: OnceLock::new() }
    }

    /// Returns the text as it was sent.
    pub(super) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Parses the text. Returns `None` if it is not JSON.
    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_str(&self.text).ok()
    }

    /// Returns the fingerprint of the members that must be equal, or `None` if the text is not a message.
    pub(super) fn meaning(&self) -> Option<Fingerprint> {
        self.reading().map(|reading| reading.meaning)
    }

    pub(super) fn role(&self) -> &str {
        self.reading().map(|reading| &*reading.role).unwrap_or_default()
    }

    /// Returns the names of members that a plain message lacks.
    pub(super) fn unusual(&self) -> &[Box<str>] {
        self.reading().map(|reading| reading.unusual.as_slice()).unwrap_or_default()
    }

    /// Returns whether `sent_back` has no reasoning, or the reasoning of this message.
    pub(super) fn admits_reasoning_of(&self, sent_back: &Self) -> bool {
        if self.as_sent == sent_back.as_sent {
            return true;
        }
        let of = |message: &Self| message.reading().and_then(|reading| reading.reasoning);
        let sent_back = of(sent_back);
        sent_back.is_none() || sent_back == of(self)
    }

    /// Returns whether a text of the message contains these words.
    pub(super) fn says(&self, words: &Words) -> bool {
        // Some clients escape all characters but ASCII, so the words have another spelling in their JSON.
        if !self.text.contains("\\u") {
            return self.text.contains(&*words.in_json);
        }
        self.json().is_some_and(|message| texts(&message).any(|text| text.contains(&*words.plain)))
    }

    /// Whether [`Self::words`] may return words, by the length of their JSON.
    pub(super) fn may_have_words(&self, at_least: usize) -> bool {
        // A message with a short text may have long calls of tools.
        let content = content_of(&self.text);
        self.text.len() >= at_least && content.is_none_or(|content| content.len() >= at_least)
    }

    /// Returns the message's text as words to search for. `None` if the content is not a single text of at least
    /// `at_least` bytes.
    pub(super) fn words(&self, at_least: usize) -> Option<Words> {
        let message = self.json()?;
        let mut texts = texts(&message);
        let (text, None) = (texts.next()?.trim(), texts.next()) else { return None };
        (text.len() >= at_least).then(|| Words::of(text))
    }

    /// Returns the message as the template reads it. `None` if it cannot be read: the server reports that error.
    pub(super) fn rendered(&self, renderer: &Renderer) -> Option<renderer::RenderMessage> {
        let read = || renderer.message(&self.json()?).ok();
        // Cache only the form for local files. A server takes the JSON, which is stored already.
        if renderer.asks() { read() } else { self.rendered.get_or_init(read).clone() }
    }

    fn reading(&self) -> Option<&Reading> {
        // Most messages are plain, and `of_plain` reads them without building a JSON value.
        let read = || Reading::of_plain(&self.text).or_else(|| Reading::of(self.json()?.as_object()?));
        self.reading.get_or_init(read).as_ref()
    }
}

/// Words to search for in other messages.
#[derive(Debug)]
pub(super) struct Words {
    plain: Box<str>,
    /// The words as they appear in JSON that escapes only the required characters.
    in_json: Box<str>,
}

impl Words {
    fn of(text: &str) -> Self {
        let quoted = Value::from(text).to_string();
        let in_json = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default();
        Self { plain: text.into(), in_json: in_json.into() }
    }
}

/// Returns the texts of a message's content.
fn texts(message: &Value) -> impl Iterator<Item = &str> {
    let content = message.get("content");
    let parts = content.and_then(Value::as_array).into_iter().flatten();
    let of_parts = parts.filter_map(|part| part.get("text").and_then(Value::as_str));
    content.and_then(Value::as_str).into_iter().chain(of_parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(message: &Value) -> StoredMessage {
        StoredMessage::of_answer(message.to_string())
    }

    #[test]
    fn words_are_found_however_they_are_escaped() {
        let words = read(&json!({"content": " é said \"so\"\n"})).words(5).unwrap();
        assert!(
            read(&json!({"role": "user", "content": [{"type": "text", "text": "He: é said \"so\"!"}]}))
                .says(&words)
        );
        let escaped = r#"{"content": "\u00e9 said \"so\""}"#;
        assert!(StoredMessage::of_request(escaped, Fingerprint::NONE).unwrap().says(&words));
        assert!(!read(&json!({"content": "é said so"})).says(&words));
        assert!(read(&json!({"content": "so"})).words(3).is_none());
    }

    #[test]
    fn reasoning_that_is_sent_back_must_be_the_same() {
        let with =
            |reasoning: Value| read(&json!({"role": "assistant", "content": "a", "reasoning": reasoning}));
        let stored = with(json!("because\n"));
        assert!(
            stored.admits_reasoning_of(&with(Value::Null))
                && stored.admits_reasoning_of(&with(json!(" because")))
        );
        assert!(!stored.admits_reasoning_of(&with(json!("why"))));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".*") {
            let message = StoredMessage::of_request(&text, Fingerprint::of(&text));
            let _ = message.map(|message| (message.meaning(), message.role().len(), message.words(1)));
        }

        #[test]
        fn odd_spellings_are_read_alike(content in r#"([a-z]|\\\\|\\n|\\"|\\/|\\u00e9|é){0,6}"#) {
            let text = format!(r#"{{"role": "user", "content" : "{content}" }}"#);
            let json: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
            let message = StoredMessage::of_request(&text, Fingerprint::of(&text)).unwrap();
            let long = Reading::of(&json);
            prop_assert_eq!(message.reading(), long.as_ref());
        }
    }
}

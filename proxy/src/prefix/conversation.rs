//! A trial's conversations as they grow: every message is kept once, whichever calls had it.

use std::collections::HashMap;
use std::sync::Arc;

use super::message::{Fingerprint, Message};

/// A conversation up to one message.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) message: Arc<Message>,
    before: Option<Arc<Link>>,
    /// How many messages, this one included.
    pub(super) length: usize,
    /// Of all messages up to this one, as they were sent.
    as_sent: Fingerprint,
    /// Of all messages up to this one, in what must be equal.
    pub(super) meaning: Fingerprint,
}

/// A conversation; none is the empty one.
pub(super) type Conversation = Option<Arc<Link>>;

/// Every message that a trial's calls had, once.
#[derive(Debug, Default)]
pub(super) struct Messages {
    by_text: HashMap<Fingerprint, Arc<Message>>,
    links: HashMap<Fingerprint, Arc<Link>>,
}

impl Messages {
    /// The messages of a request; only those that never came before are read. None where one is no message.
    pub(super) fn take(&mut self, texts: &[&str]) -> Option<Vec<Arc<Message>>> {
        texts.iter().map(|text| self.take_one(text)).collect()
    }

    fn take_one(&mut self, text: &str) -> Option<Arc<Message>> {
        let as_sent = Fingerprint::of(text);
        if let Some(known) = self.by_text.get(&as_sent) {
            return Some(Arc::clone(known));
        }
        let message = Arc::new(Message::read(text)?);
        self.by_text.insert(as_sent, Arc::clone(&message));
        Some(message)
    }

    /// The conversation that goes on with this message.
    pub(super) fn then(&mut self, before: &Conversation, message: &Arc<Message>) -> Arc<Link> {
        let (length, as_sent, meaning) = match before {
            Some(link) => (link.length, link.as_sent, link.meaning),
            None => (0, Fingerprint::NONE, Fingerprint::NONE),
        };
        let as_sent = as_sent.then(message.as_sent);
        let link = self.links.entry(as_sent).or_insert_with(|| {
            Arc::new(Link {
                message: Arc::clone(message),
                before: before.clone(),
                length: length + 1,
                as_sent,
                meaning: meaning.then(message.meaning),
            })
        });
        Arc::clone(link)
    }

    /// The conversation that goes on with these.
    pub(super) fn extended(&mut self, before: Conversation, messages: &[Arc<Message>]) -> Conversation {
        messages.iter().fold(before, |before, message| Some(self.then(&before, message)))
    }

    /// Whether nothing was ever said.
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}

impl Link {
    /// Its messages, from the first on.
    pub(super) fn messages(&self) -> Vec<Arc<Message>> {
        let mut messages = Vec::with_capacity(self.length);
        let mut at = Some(self);
        while let Some(link) = at {
            messages.push(Arc::clone(&link.message));
            at = link.before.as_deref();
        }
        messages.reverse();
        messages
    }
}

impl Drop for Link {
    /// One after the other: a long conversation would be deeper than the stack if each dropped the one before it.
    fn drop(&mut self) {
        let mut before = self.before.take();
        while let Some(link) = before {
            before = Arc::into_inner(link).and_then(|mut link| link.before.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(n: usize) -> String {
        format!(r#"{{"role":"user","content":"{n}"}}"#)
    }

    #[test]
    fn messages_and_beginnings_are_kept_once() {
        let mut messages = Messages::default();
        let texts: Vec<String> = (0..4).map(text).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let first = messages.take(&texts).unwrap();
        let long = messages.extended(None, &first).unwrap();
        let again = messages.take(&texts[..2]).unwrap();
        let short = messages.extended(None, &again).unwrap();
        assert!(Arc::ptr_eq(long.before.as_ref().unwrap().before.as_ref().unwrap(), &short));
        assert_eq!((messages.by_text.len(), messages.links.len()), (4, 4));
        assert_eq!(
            long.messages().iter().map(|m| m.text().unwrap().to_owned()).collect::<Vec<_>>(),
            ["0", "1", "2", "3"]
        );
    }

    #[test]
    fn a_long_conversation_is_dropped_without_a_deep_stack() {
        let mut messages = Messages::default();
        let message = Arc::new(Message::read(&text(0)).unwrap());
        let mut end = None;
        for _ in 0..200_000 {
            end = Some(messages.then(&end, &message));
        }
        drop(messages);
        assert_eq!(end.unwrap().length, 200_000);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert!(Messages::default().take(&["[]"]).is_none());
    }
}

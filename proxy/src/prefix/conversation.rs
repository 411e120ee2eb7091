//! A trial's conversations as a tree. Each message is stored once, and each path from the root is a conversation.
//!
//! A message that an agent sends again is found by its text. Its meaning is computed only if another message already
//! follows the same position: only then can it be another spelling of that message.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::fingerprint::{ByFingerprint, Fingerprint};
use super::message::StoredMessage;

/// Estimated bytes of a message in addition to its text. The text counts twice: as it was sent, and as the template
/// reads it.
const OF_MESSAGE: u64 = 256;

/// A conversation, represented by its last message.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) message: Arc<StoredMessage>,
    before: Option<Arc<Link>>,
    /// The number of messages, including this one.
    length: usize,
    pub(super) place: TreePosition,
}

/// The position of a conversation in the tree: the number of its last link, or 0 before the first message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct TreePosition(u32);

/// Links that follow one position and mean the same in different spellings: an index of [`Conversations::groups`].
type SpellingGroup = usize;

/// A conversation, or `None` for the empty one.
pub(super) type KnownConversation = Option<Arc<Link>>;

/// All messages of a trial.
#[derive(Debug, Default)]
pub(super) struct Conversations {
    messages: HashMap<Fingerprint, Arc<StoredMessage>, ByFingerprint>,
    /// The estimated memory of the messages, in bytes.
    bytes: u64,
    groups: Vec<Vec<Arc<Link>>>,
    links: u32,
    /// The group that follows a position, by the text of a message, for each spelling that was sent.
    by_text: HashMap<(TreePosition, Fingerprint), SpellingGroup, ByFingerprint>,
    /// The group that follows a position, by the meaning of its messages.
    by_meaning: HashMap<(TreePosition, Fingerprint), SpellingGroup, ByFingerprint>,
    /// The only group that follows a position. Its meaning has not been needed yet.
    alone: HashMap<TreePosition, SpellingGroup>,
    /// Positions at which the meanings of messages have been compared.
    compared: HashSet<TreePosition>,
}

/// The part of a request that the tree already contains.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// For each message that is known at its position, the links that it may be.
    pub(super) steps: Vec<Vec<Arc<Link>>>,
    /// Links that mean the same as a message of the request but have other reasoning than the message sent back.
    pub(super) changed: Vec<Arc<Link>>,
}

impl Conversations {
    /// Stores the messages of a request. Returns `None` if a text is not a message.
    pub(super) fn take(&mut self, texts: &[&str]) -> Option<Vec<Arc<StoredMessage>>> {
        texts.iter().map(|text| self.take_one(text)).collect()
    }

    fn take_one(&mut self, text: &str) -> Option<Arc<StoredMessage>> {
        let as_sent = Fingerprint::of(text);
        if let Some(known) = self.messages.get(&as_sent) {
            return Some(Arc::clone(known));
        }
        let message = Arc::new(StoredMessage::of_request(text, as_sent)?);
        self.messages.insert(as_sent, Arc::clone(&message));
        self.bytes += OF_MESSAGE + 2 * text.len() as u64;
        Some(message)
    }

    /// Returns how far the messages repeat known conversations.
    pub(super) fn known(&mut self, messages: &[Arc<StoredMessage>]) -> Known {
        let mut known = Known::default();
        let mut places = vec![TreePosition::default()];
        for message in messages {
            let mut same = Vec::new();
            for &place in &places {
                let Some(group) = self.behind(place, message) else { continue };
                for link in self.groups.get(group).into_iter().flatten() {
                    let is_same = link.message.admits_reasoning_of(message);
                    if is_same { &mut same } else { &mut known.changed }.push(Arc::clone(link));
                }
            }
            if same.is_empty() {
                break;
            }
            places.clear();
            places.extend(same.iter().map(|link| link.place));
            known.steps.push(same);
        }
        known
    }

    /// Returns the links after a position that mean the same as `message`.
    fn behind(&mut self, place: TreePosition, message: &StoredMessage) -> Option<SpellingGroup> {
        if let Some(&group) = self.by_text.get(&(place, message.as_sent)) {
            return Some(group);
        }
        // A second message arrived at this position, so the meaning of the first one is needed now.
        if let Some(alone) = self.alone.remove(&place) {
            self.compared.insert(place);
            let meaning = self.groups.get(alone).and_then(|links| links.first()?.message.meaning());
            if let Some(meaning) = meaning {
                self.by_meaning.insert((place, meaning), alone);
            }
        } else if !self.compared.contains(&place) {
            // No other message follows this position, so there is nothing to compare.
            return None;
        }
        let group = *self.by_meaning.get(&(place, message.meaning()?))?;
        self.by_text.insert((place, message.as_sent), group);
        Some(group)
    }

    /// Returns the conversation that appends `message` to `before`. Stores the link if it is new.
    pub(super) fn then(&mut self, before: &KnownConversation, message: &Arc<StoredMessage>) -> Arc<Link> {
        let (place, length) = before.as_ref().map(|link| (link.place, link.length)).unwrap_or_default();
        let group = match self.behind(place, message) {
            Some(group) => group,
            None => self.add_group(place, message),
        };
        let links = self.groups.get(group).map(Vec::as_slice).unwrap_or_default();
        // Another spelling shares the group but needs its own link, because the template reads each text as it was
        // sent.
        if let Some(link) = links.iter().find(|link| link.message.as_sent == message.as_sent) {
            return Arc::clone(link);
        }
        self.links += 1;
        let (message, before) = (Arc::clone(message), before.clone());
        let link = Arc::new(Link { message, before, length: length + 1, place: TreePosition(self.links) });
        if let Some(links) = self.groups.get_mut(group) {
            links.push(Arc::clone(&link));
        }
        link
    }

    fn add_group(&mut self, place: TreePosition, message: &StoredMessage) -> SpellingGroup {
        let group = self.groups.len();
        self.groups.push(Vec::with_capacity(1));
        self.by_text.insert((place, message.as_sent), group);
        // The meaning costs a parse, so it is computed only if a second message arrives at this position.
        if !self.compared.contains(&place) {
            self.alone.insert(place, group);
        } else if let Some(meaning) = message.meaning() {
            self.by_meaning.insert((place, meaning), group);
        }
        group
    }

    /// Returns the conversation that appends all `messages` to `before`.
    pub(super) fn extended(
        &mut self,
        before: KnownConversation,
        messages: &[Arc<StoredMessage>],
    ) -> KnownConversation {
        messages.iter().fold(before, |before, message| Some(self.then(&before, message)))
    }

    /// Returns the estimated memory of the messages, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether no conversation has been stored.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

impl Link {
    /// Returns whether this link's message directly follows `conversation`.
    pub(super) fn follows(&self, conversation: &Self) -> bool {
        self.before.as_ref().is_some_and(|before| before.place == conversation.place)
    }

    /// Returns the messages of the conversation, from the first one on.
    pub(super) fn messages(&self) -> Vec<Arc<StoredMessage>> {
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
    /// Drops the links in a loop: recursion through a long conversation would overflow the stack.
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

    fn message(text: &str) -> Arc<StoredMessage> {
        Arc::new(StoredMessage::of_request(text, Fingerprint::of(text)).unwrap())
    }

    #[test]
    fn messages_and_beginnings_are_kept_once() {
        let mut said = Conversations::default();
        let texts: Vec<String> = (0..4).map(text).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let first = said.take(&texts).unwrap();
        let long = said.extended(None, &first).unwrap();
        let again = said.take(&texts[..2]).unwrap();
        let short = said.extended(None, &again).unwrap();
        assert!(Arc::ptr_eq(long.before.as_ref().unwrap().before.as_ref().unwrap(), &short));
        assert_eq!((said.messages.len(), said.links), (4, 4));
        let messages = long.messages();
        assert!(messages.iter().zip(&first).all(|(kept, sent)| Arc::ptr_eq(kept, sent)));
        assert_eq!(said.known(&first).steps.len(), 4);
        assert_eq!(said.by_meaning.len(), 0, "nothing had to be compared");
    }

    #[test]
    fn other_spellings_are_known_where_something_stands_in_their_place() {
        let mut said = Conversations::default();
        let (plain, other) = (text(1), r#"{"content": [{"type":"text","text":"1"}],"role":"user"}"#);
        let first = said.extended(None, &[message(&text(0)), message(&plain)]).unwrap();
        let known = said.known(&[message(&text(0)), message(other)]);
        assert!(matches!(known.steps.as_slice(), [_, links] if Arc::ptr_eq(&links[0], &first)));
        // The other spelling gets its own link, and the first spelling finds that link as well.
        said.extended(None, &[message(&text(0)), message(other)]);
        for spelling in [&*plain, other] {
            assert_eq!(said.known(&[message(&text(0)), message(spelling)]).steps[1].len(), 2);
        }
        assert_eq!(said.known(&[message(&text(0)), message(&text(2))]).steps.len(), 1);
    }

    #[test]
    fn a_long_conversation_is_dropped_without_a_deep_stack() {
        let mut said = Conversations::default();
        let message = message(&text(0));
        let mut end = None;
        for _ in 0..200_000 {
            end = Some(said.then(&end, &message));
        }
        drop(said);
        assert_eq!(end.unwrap().length, 200_000);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert!(Conversations::default().take(&["[]"]).is_none());
    }
}

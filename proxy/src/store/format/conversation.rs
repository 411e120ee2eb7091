//! Stores the messages behind a call's prompt and the texts of its answers. With them, a restarted proxy continues
//! conversations token for token, and exports contain texts.
//!
//! Each text is stored once. A call refers to the messages that it shares with an earlier call of its trial, and
//! contains the new ones. A long text that any trial of the segment has already stored becomes a reference.

use std::sync::Arc;

use rolltap_rollout::conversation::Conversation;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::varint::{Numbers, NumbersMut};

/// The conversation that a call belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredConversation {
    /// How the prompt was made.
    pub maker: PromptMaker,
    /// The messages that the prompt was rendered from, each as JSON in the form of a chat request.
    pub messages: Vec<Arc<str>>,
    /// The other members of the chat request that influence the rendering, as a JSON object.
    pub inputs: Arc<str>,
    /// The answers with the index of their choice, each as a message in JSON.
    pub answers: Vec<(u32, Arc<str>)>,
}

/// The component that made a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptMaker {
    /// The server rendered exactly the messages.
    Server,
    /// The server rendered more than the messages (media), or less (a truncated prompt).
    ServerOtherwise,
    /// The proxy composed the prompt from the token ids of an earlier call and of the new tail.
    Proxy,
}

/// The messages that a record omits: the first messages of an earlier call, and perhaps one of its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SharedMessages {
    messages: usize,
    /// The answer of the earlier call that follows, counted from 1. 0 if no answer is shared. Above 0 only if all
    /// messages of that call are shared.
    answer: usize,
}

impl SharedMessages {
    pub(crate) fn between(told: &StoredConversation, earlier: &StoredConversation) -> Self {
        let pairs = told.messages.iter().zip(&earlier.messages);
        // Turns of one conversation usually share allocations, so comparing the pointers first is faster.
        let messages = pairs.take_while(|(a, b)| Arc::ptr_eq(a, b) || a == b).count();
        let next = told.messages.get(messages).filter(|_| messages == earlier.messages.len());
        let answer = next.and_then(|next| earlier.answers.iter().position(|(_, answer)| answer == next));
        Self { messages, answer: answer.map_or(0, |answer| answer + 1) }
    }

    /// The number of messages that the record omits.
    pub(crate) fn length(self) -> usize {
        self.messages + usize::from(self.answer > 0)
    }
}

/// The member of [`StoredConversation::inputs`] that a reader of words needs.
#[derive(Deserialize)]
struct OfferedTools<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
}

impl StoredConversation {
    /// Returns the messages, the answers and the offered tools. The texts are shared, not copied.
    pub fn to_conversation(&self) -> Conversation {
        let offered = serde_json::from_str::<OfferedTools<'_>>(&self.inputs).ok();
        let tools = offered.and_then(|offered| offered.tools).map(RawValue::get);
        Conversation {
            messages: self.messages.clone(),
            // vLLM treats an empty list like no tools.
            tools: tools.filter(|tools| tools.starts_with('[') && *tools != "[]").map(Arc::from),
            answers: self.answers.clone(),
        }
    }

    /// Returns the messages and answers that are not shared with an earlier call, in the order of the record.
    pub(crate) fn new_texts(&self, shared: Option<SharedMessages>) -> impl Iterator<Item = &Arc<str>> {
        let known = shared.map(SharedMessages::length).unwrap_or_default();
        self.messages.iter().skip(known).chain(self.answers.iter().map(|(_, text)| text))
    }
}

/// Appends a conversation. `earlier` is the distance in bytes to the record of the call that shares messages, and the
/// shared part. `places` yields an item for the inputs and for each of [`StoredConversation::new_texts`]: the distance
/// to the text, or `None` if the text is part of this record.
pub(crate) fn write(
    told: &StoredConversation,
    earlier: Option<(u64, SharedMessages)>,
    places: &mut impl Iterator<Item = Option<u64>>,
    out: &mut Vec<u8>,
) {
    out.push(match told.maker {
        PromptMaker::Server => 1,
        PromptMaker::ServerOtherwise => 2,
        PromptMaker::Proxy => 3,
    });
    let mut put = |text: &Arc<str>, out: &mut Vec<u8>| match places.next().flatten() {
        Some(distance) => out.put_number(distance),
        None => {
            // Distance 0 means that the text follows here.
            out.put_number(0);
            out.put_number(text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
    };
    put(&told.inputs, out);
    let (distance, shared) = earlier.unwrap_or_default();
    for number in [distance, shared.messages as u64, shared.answer as u64] {
        out.put_number(number);
    }
    let new = told.messages.get(shared.length()..).unwrap_or_default();
    out.put_number(new.len() as u64);
    new.iter().for_each(|text| put(text, out));
    out.put_number(told.answers.len() as u64);
    for (index, text) in &told.answers {
        out.put_number(u64::from(*index));
        put(text, out);
    }
}

/// Resolves the references of a conversation by their distance in bytes before its record.
pub(crate) trait Referred {
    fn conversation(&mut self, distance: u64) -> Option<Arc<StoredConversation>>;
    fn text(&mut self, distance: u64) -> Option<Arc<str>>;
}

/// Reads a conversation. Returns `None` if the bytes are malformed or refer to a missing record.
pub(crate) fn read(numbers: &mut Numbers<'_>, referred: &mut impl Referred) -> Option<StoredConversation> {
    let maker = match numbers.number()? {
        1 => PromptMaker::Server,
        2 => PromptMaker::ServerOtherwise,
        3 => PromptMaker::Proxy,
        _ => return None,
    };
    let inputs = read_text(numbers, referred)?;
    let [distance, shared, answer] = [numbers.number()?, numbers.number()?, numbers.number()?];
    let mut messages = match distance {
        // Distance 0 means that no earlier call shares messages.
        0 => Vec::new(),
        _ => shared_messages(&*referred.conversation(distance)?, shared, answer)?,
    };
    for _ in 0..numbers.number()? {
        messages.push(read_text(numbers, referred)?);
    }
    let mut answers = Vec::new();
    for _ in 0..numbers.number()? {
        let index = u32::try_from(numbers.number()?).ok()?;
        answers.push((index, read_text(numbers, referred)?));
    }
    Some(StoredConversation { maker, messages, inputs, answers })
}

fn shared_messages(earlier: &StoredConversation, shared: u64, answer: u64) -> Option<Vec<Arc<str>>> {
    let mut messages = earlier.messages.get(..usize::try_from(shared).ok()?)?.to_vec();
    if let Some(answer) = answer.checked_sub(1) {
        let (_, text) = earlier.answers.get(usize::try_from(answer).ok()?)?;
        messages.push(Arc::clone(text));
    }
    Some(messages)
}

fn read_text(numbers: &mut Numbers<'_>, referred: &mut impl Referred) -> Option<Arc<str>> {
    match numbers.number()? {
        0 => {
            let length = numbers.number()?;
            std::str::from_utf8(numbers.bytes(length)?).ok().map(Arc::from)
        }
        distance => referred.text(distance),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct One {
        told: Option<Arc<StoredConversation>>,
        text: Option<Arc<str>>,
    }

    impl Referred for One {
        fn conversation(&mut self, distance: u64) -> Option<Arc<StoredConversation>> {
            self.told.clone().filter(|_| distance == 9)
        }

        fn text(&mut self, distance: u64) -> Option<Arc<str>> {
            self.text.clone().filter(|_| distance == 7)
        }
    }

    fn told(messages: &[String], answers: &[String]) -> StoredConversation {
        StoredConversation {
            maker: PromptMaker::Proxy,
            messages: messages.iter().map(|text| text.as_str().into()).collect(),
            inputs: "{}".into(),
            answers: answers.iter().zip(0..).map(|(text, index)| (index, text.as_str().into())).collect(),
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            first in prop::collection::vec("[a-c]{1,2}", 0..5),
            second in prop::collection::vec("[a-c]{1,2}", 0..7),
            answers in prop::collection::vec("[a-c]{1,2}", 0..3),
        ) {
            let (earlier, told) = (told(&first, &answers), told(&second, &answers));
            let shared = SharedMessages::between(&told, &earlier);
            prop_assert!(shared.length() <= told.messages.len());
            let mut bytes = Vec::new();
            let long: Arc<str> = "aa".into();
            let texts: Vec<_> = std::iter::once(&told.inputs).chain(told.new_texts(Some(shared))).collect();
            let mut places = texts.into_iter().map(|text| (*text == long).then_some(7));
            write(&told, Some((9, shared)), &mut places, &mut bytes);
            let mut referred = One { told: Some(Arc::new(earlier)), text: Some(long) };
            let mut numbers = Numbers::of(&bytes);
            prop_assert_eq!(read(&mut numbers, &mut referred), Some(told));
            prop_assert!(numbers.is_empty());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(0_u8..12, 0..40)) {
            let mut referred = One { told: Some(Arc::new(told(&["a".into()], &[]))), text: Some("t".into()) };
            read(&mut Numbers::of(&bytes), &mut referred);
        }
    }

    #[test]
    fn an_answer_that_is_sent_back_as_it_was_is_not_written_again() {
        let first = told(&["a".to_owned()], &["b".to_owned()]);
        let next = told(&["a".to_owned(), "b".to_owned(), "c".to_owned()], &[]);
        assert_eq!(SharedMessages::between(&next, &first), SharedMessages { messages: 1, answer: 1 });
    }

    #[test]
    fn a_conversation_has_the_offered_tools() {
        let tools = |inputs: &str| {
            let stored = StoredConversation { inputs: inputs.into(), ..told(&["a".into()], &["b".into()]) };
            stored.to_conversation().tools
        };
        assert_eq!(
            tools(r#"{"model":"m","tools":[{"type":"function"}]}"#).as_deref(),
            Some(r#"[{"type":"function"}]"#)
        );
        for inputs in ["{}", r#"{"tools":null}"#, r#"{"tools":[]}"#, r#"{"tools":"x"}"#, ""] {
            assert_eq!(tools(inputs), None, "{inputs}");
        }
        let Conversation { messages, answers, .. } = told(&["a".into()], &["b".into()]).to_conversation();
        assert_eq!((messages, answers), (vec!["a".into()], vec![(0, "b".into())]));
    }

    #[test]
    fn fuzz_conversation() {
        rolltap_testing::fuzz!("conversation", |bytes| {
            let mut referred =
                One { told: Some(Arc::new(told(&["a".into()], &["b".into()]))), text: Some("t".into()) };
            let Some(read) = super::read(&mut Numbers::of(bytes), &mut referred) else { return };
            let mut out = Vec::new();
            write(&read, None, &mut std::iter::repeat(None), &mut out);
            let mut numbers = Numbers::of(&out);
            assert_eq!(super::read(&mut numbers, &mut One::default()), Some(read));
            assert!(numbers.is_empty());
        });
    }
}

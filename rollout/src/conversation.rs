//! The conversation of a call: the messages of its request, its answers, and the tools that the request offers.
//!
//! All texts are JSON in the form of chat completions, whatever the dialect of the agent, because a server renders its
//! prompts from this form. [`Conversations::add_to`] writes them into the columns `calls[].messages` and
//! `calls[].tools` of rows.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ids::CallId;
use crate::row::RolloutRow;

/// The conversation of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The messages of the request in their order, each a JSON object.
    pub messages: Vec<Arc<str>>,
    /// The tools that the request offers, as a JSON array. `None` if it offers none.
    pub tools: Option<Arc<str>>,
    /// The answers with the index of their choice, each a message as a JSON object. An answer that was cut off, or that
    /// could not be read, is absent.
    pub answers: Vec<(u32, Arc<str>)>,
}

impl Conversation {
    /// Returns the messages of the request and, last, the answer of this choice, as a JSON array. `None` if the answer
    /// was not recorded.
    pub fn with_answer(&self, choice_index: u32) -> Option<String> {
        let (_, answer) = self.answers.iter().find(|(index, _)| *index == choice_index)?;
        let texts: Vec<&str> = self.messages.iter().chain([answer]).map(|text| &**text).collect();
        Some(format!("[{}]", texts.join(",")))
    }
}

/// The recorded conversations of a trial, by call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversations(HashMap<String, Conversation>);

impl FromIterator<(CallId, Conversation)> for Conversations {
    fn from_iter<I: IntoIterator<Item = (CallId, Conversation)>>(calls: I) -> Self {
        Self(calls.into_iter().map(|(call, conversation)| (call.to_string(), conversation)).collect())
    }
}

impl Conversations {
    /// Returns the conversation of a call, or `None` if it was not recorded.
    pub fn of_call(&self, call_id: &CallId) -> Option<&Conversation> {
        self.0.get(call_id.as_str())
    }

    /// Writes `messages` and `tools` into the calls of rows. A call without a recorded conversation, or without a
    /// recorded answer, is left as it is.
    ///
    /// Each call repeats the history before it, so the size of a row grows with the square of its turns.
    pub fn add_to(&self, rows: &mut [RolloutRow]) {
        for span in rows.iter_mut().flat_map(|row| &mut row.calls) {
            let Some(conversation) = self.0.get(&span.call_id) else { continue };
            let choice_index = u32::try_from(span.choice_index).ok();
            let Some(messages) = choice_index.and_then(|index| conversation.with_answer(index)) else {
                continue;
            };
            span.messages = Some(messages);
            span.tools = conversation.tools.as_deref().map(str::to_owned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing::fixture::forked;

    fn conversation() -> Conversation {
        Conversation {
            messages: vec![r#"{"role":"user","content":"hi"}"#.into()],
            tools: Some("[]".into()),
            answers: vec![(0, r#"{"role":"assistant","content":"a"}"#.into())],
        }
    }

    #[test]
    fn the_answer_of_the_choice_is_last() {
        let expected = r#"[{"role":"user","content":"hi"},{"role":"assistant","content":"a"}]"#;
        assert_eq!(conversation().with_answer(0).as_deref(), Some(expected));
        assert_eq!(conversation().with_answer(1), None, "its answer is not recorded");
        let alone = Conversation { messages: Vec::new(), ..conversation() };
        assert_eq!(alone.with_answer(0).as_deref(), Some(r#"[{"role":"assistant","content":"a"}]"#));
    }

    #[test]
    fn a_call_has_its_conversation_on_every_branch() {
        let mut rows = forked().rows;
        let shared = CallId::new(rows[0].calls[0].call_id.clone()).unwrap();
        Conversations::from_iter([(shared, conversation())]).add_to(&mut rows);
        for row in &rows {
            assert_eq!(row.calls[0].messages, conversation().with_answer(0));
            assert_eq!(row.calls[0].tools.as_deref(), Some("[]"));
            assert_eq!(
                (&row.calls[1].messages, &row.calls[1].tools),
                (&None, &None),
                "it has no conversation"
            );
        }
    }
}

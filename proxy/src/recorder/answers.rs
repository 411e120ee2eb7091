//! Collects the message of each choice, in the form in which a chat client sends it back with its next request.
//!
//! A stream delivers a message in one piece per token. The text between the quotes of each piece is appended, and the
//! escapes are decoded once at the end. A token thus costs only a copy of its bytes.

mod calls;
mod text;

use self::calls::Calls;
use self::text::Text;
use super::find_or_push;
use crate::wire::json_edit::Object;
use crate::wire::json_scan::Cursor;

/// The messages of a call's choices while they arrive.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    choices: Vec<ChoiceMessage>,
    /// A part was lost, so every message may be incomplete.
    is_incomplete: bool,
}

/// The received part of one choice's message.
#[derive(Debug, Default)]
struct ChoiceMessage {
    choice: u32,
    role: Text,
    content: Text,
    reasoning: Text,
    calls: Calls,
    /// A part does not have the form of a message.
    is_unreadable: bool,
}

impl Answers {
    /// Adds the JSON text of a delta or of a whole message.
    pub(crate) fn part(&mut self, choice: u32, delta_or_message: &str) {
        let new = || ChoiceMessage { choice, ..ChoiceMessage::default() };
        let message = find_or_push(&mut self.choices, |message| message.choice == choice, new);
        if message.take(delta_or_message).is_none() {
            message.is_unreadable = true;
        }
    }

    /// Records the loss of a part whose choice is unknown.
    pub(crate) fn lost_a_part(&mut self) {
        self.is_incomplete = true;
    }

    /// Returns the messages as JSON texts, in the form of request messages, with the index of their choice. A message is
    /// `None` if it could not be read. The form is
    ///
    /// `{"role":…,"content":…,"reasoning":…,"tool_calls":[{"id":…,"type":…,"function":{"name":…,"arguments":…}}]}`.
    ///
    /// Empty members are omitted, except `content`, which is `null`: every stream begins with an empty content, so empty
    /// and absent mean the same. `arguments` is the model's text, or empty if there is none.
    pub(crate) fn finish(mut self) -> Vec<(u32, Option<String>)> {
        self.choices.sort_by_key(|message| message.choice);
        let is_whole = |message: &ChoiceMessage| !self.is_incomplete && !message.is_unreadable;
        let finished = self.choices.into_iter().map(|message| {
            let (choice, is_whole) = (message.choice, is_whole(&message));
            (choice, if is_whole { message.finish() } else { None })
        });
        finished.collect()
    }
}

impl ChoiceMessage {
    /// Adds a part. `None` if the text does not have the form of a message.
    fn take(&mut self, delta_or_message: &str) -> Option<()> {
        // vLLM sends `reasoning` since 0.12 and `reasoning_content` before. Some versions send both.
        const NAMES: [&str; 5] = ["content", "reasoning", "tool_calls", "role", "reasoning_content"];
        let [content, reasoning, calls, role, older] = members(delta_or_message, NAMES)?;
        if let Some(content) = content {
            self.content.append(content)?;
        }
        if let Some(reasoning) = reasoning.or(older) {
            self.reasoning.append(reasoning)?;
        }
        if let Some(calls) = calls {
            self.calls.take(calls)?;
        }
        if let Some(role) = role {
            self.role.once(role)?;
        }
        Some(())
    }

    fn finish(self) -> Option<String> {
        let mut message = String::with_capacity(96 + self.content.length() + self.reasoning.length());
        message.push_str("{\"role\":");
        self.role.write("\"assistant\"", &mut message)?;
        message.push_str(",\"content\":");
        self.content.write("null", &mut message)?;
        if !self.reasoning.is_empty() {
            message.push_str(",\"reasoning\":");
            self.reasoning.write("null", &mut message)?;
        }
        if let Some(calls) = self.calls.finish()? {
            message.push_str(",\"tool_calls\":");
            message.push_str(&calls.to_string());
        }
        message.push('}');
        Some(message)
    }
}

/// Returns the values of these members as texts. A value is `None` if it is `null`. The last of several equal members
/// counts, as in [`Object`], which parses texts of an unusual form.
fn members<'a, const N: usize>(object: &'a str, names: [&str; N]) -> Option<[Option<&'a str>; N]> {
    let mut values = [None; N];
    let mut cursor = Cursor::new(object);
    let read = cursor.object(|cursor, key| {
        let value = cursor.non_null()?;
        if let Some((_, found)) = names.iter().zip(&mut values).find(|(name, _)| **name == key) {
            *found = value;
        }
        Some(())
    });
    if read.is_some() && cursor.is_at_end() {
        return Some(values);
    }
    let object = Object::scan(object).ok()?;
    Some(names.map(|name| object.get(name).filter(|&value| value != "null")))
}

#[cfg(test)]
mod tests;

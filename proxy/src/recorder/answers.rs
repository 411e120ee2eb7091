//! What upstream's parsers made of an answer: each choice's message, as a chat client that keeps the conversation sends
//! it back.
//!
//! A stream brings it in a piece per token. Pieces of text are gathered as they stand between their quotes and read once
//! at the end, so a token costs a copy of its own few bytes and nothing else.

mod calls;
mod text;

use serde_json::{Map, Value};

use self::calls::Calls;
use self::text::Text;
use super::find_or_push;
use crate::wire::json_edit::Object;
use crate::wire::json_scan::Cursor;

/// The messages of a call's choices while they come.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    choices: Vec<Said>,
    /// Something came of which nobody knows what it said.
    is_incomplete: bool,
}

/// One choice's message as far as it came.
#[derive(Debug, Default)]
struct Said {
    choice: u32,
    role: Text,
    content: Text,
    reasoning: Text,
    calls: Calls,
    /// Some of it was of no form that a message has.
    is_unreadable: bool,
}

impl Answers {
    /// Takes the JSON text of a delta or of a whole message.
    pub(crate) fn part(&mut self, choice: u32, delta_or_message: &str) {
        let new = || Said { choice, ..Said::default() };
        let said = find_or_push(&mut self.choices, |said| said.choice == choice, new);
        if said.take(delta_or_message).is_none() {
            said.is_unreadable = true;
        }
    }

    /// A part could not be read far enough to tell whose it was.
    pub(crate) fn lost_a_part(&mut self) {
        self.is_incomplete = true;
    }

    /// The messages in the form in which requests have them, by the choice's index. None for one that could not be read.
    ///
    /// `{"role":…,"content":…,"reasoning":…,"tool_calls":[{"id":…,"type":…,"function":{"name":…,"arguments":…}}]}`; what
    /// is empty or was never said is left out, but for `content`, which is then `null`: a stream begins with an empty
    /// content whatever comes, so empty and none mean the same. `arguments` is the model's text, empty where none came.
    pub(crate) fn finish(mut self) -> Vec<(u32, Option<Value>)> {
        self.choices.sort_by_key(|said| said.choice);
        let is_whole = |said: &Said| !self.is_incomplete && !said.is_unreadable;
        let finished = self.choices.into_iter().map(|said| {
            let (choice, is_whole) = (said.choice, is_whole(&said));
            (choice, if is_whole { said.finish() } else { None })
        });
        finished.collect()
    }
}

impl Said {
    /// None if the text has not the form of a message.
    fn take(&mut self, delta_or_message: &str) -> Option<()> {
        // vLLM says `reasoning` since 0.12, `reasoning_content` before, and both for a while.
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

    fn finish(self) -> Option<Value> {
        let role = self.role.finish()?.unwrap_or_else(|| "assistant".to_owned());
        let mut message = Map::from_iter([
            ("role".to_owned(), role.into()),
            ("content".to_owned(), self.content.finish()?.into()),
        ]);
        if let Some(reasoning) = self.reasoning.finish()? {
            message.insert("reasoning".to_owned(), reasoning.into());
        }
        if let Some(calls) = self.calls.finish()? {
            message.insert("tool_calls".to_owned(), calls);
        }
        Some(message.into())
    }
}

/// The values of an object's members of these names, as texts; `null` is none. Of several the last counts, as in
/// [`Object`], which is asked where the text is of an unusual form.
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

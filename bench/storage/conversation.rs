//! An agent's conversation that grows by an observation and an answer each turn.

use serde_json::{Value, json};

use crate::text::Text;

/// The size of a conversation, in tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) turns: usize,
    pub(crate) first_prompt: usize,
    pub(crate) answer: usize,
    pub(crate) observation: usize,
}

/// Prompts have 1 500 to about 23 000 tokens, and 12 400 on average.
pub(crate) const LONG: Size = Size { turns: 20, first_prompt: 1500, answer: 250, observation: 900 };

/// The smallest calls.
pub(crate) const TINY: Size = Size { turns: 20, first_prompt: 12, answer: 6, observation: 6 };

/// The first word of the first message. The number of the conversation follows it.
pub(crate) const NAME: &str = "Session";

/// The ids that frame a message in the prompt, like a chat template's special tokens.
const BEGIN: u32 = 151_644;
const END: u32 = 151_645;

pub(crate) struct Conversation {
    pub(crate) messages: Vec<Value>,
    pub(crate) prompt: Vec<u32>,
}

/// The answer of one turn.
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) ids: Vec<u32>,
}

/// Plays all turns of a conversation, which depend on its number alone. Gives each turn's prompt and answer to `each`,
/// which returns whether to continue.
pub(crate) fn play(
    text: &Text,
    number: usize,
    size: Size,
    mut each: impl FnMut(&Conversation, &Answer) -> bool,
) {
    let mut reader = text.from(number * 7919);
    let mut conversation = Conversation { messages: Vec::new(), prompt: Vec::new() };
    let mut wanted = size.first_prompt;
    for turn in 0..size.turns {
        let (mut said, ids) = reader.take(wanted);
        if turn == 0 {
            said.insert_str(0, &format!("{NAME} {number}.\n"));
        }
        conversation.add("user", &said, &ids);
        conversation.prompt.push(BEGIN);
        let (text, mut ids) = reader.take(size.answer);
        ids.push(END);
        let answer = Answer { text, ids };
        if !each(&conversation, &answer) {
            return;
        }
        conversation.prompt.extend(&answer.ids);
        conversation.messages.push(json!({"role": "assistant", "content": answer.text}));
        wanted = size.observation;
    }
}

impl Conversation {
    fn add(&mut self, role: &str, text: &str, ids: &[u32]) {
        self.messages.push(json!({"role": role, "content": text}));
        self.prompt.push(BEGIN);
        self.prompt.extend(ids);
        self.prompt.push(END);
    }
}

//! The testbed's models, and the settings that shape their noise into answers.

use serde_json::{Map, Value, json};

/// Token ids and biases that shape a random model's answers.
pub(super) struct Model {
    pub(super) name: &'static str,
    /// Whether its template drops earlier reasoning after the next user message.
    pub(super) forgets_reasoning: bool,
    /// The largest number of turns within the time of a test.
    pub(super) most_turns: usize,
    /// `<|im_start|>`
    pub(super) start_of_turn: u32,
    /// `<|im_end|>`
    pub(super) end_of_turn: u32,
    /// `</think>`
    pub(super) end_of_thought: u32,
    /// Tokens with a meaning to templates and parsers. If one is sampled by accident, the answer is unpredictable.
    special: std::ops::RangeInclusive<u32>,
    /// Makes one token in about ten the end of the turn, or of the thought.
    often: f64,
}

pub(super) const TINY: Model = Model {
    name: "tiny",
    forgets_reasoning: false,
    most_turns: 8,
    start_of_turn: 4088,
    end_of_turn: 4089,
    end_of_thought: 4095,
    special: 4087..=4095,
    often: 6.5,
};

/// A random model under Qwen3's own tokenizer and template.
pub(super) const QWEN3: Model = Model {
    name: "long",
    forgets_reasoning: true,
    most_turns: 5,
    start_of_turn: 151_644,
    end_of_turn: 151_645,
    end_of_thought: 151_668,
    special: 151_643..=151_668,
    often: 10.0,
};

/// One or two calls, with the freedom in spelling that models have.
const CALLS: &str = concat!(
    r#"([a-z]{1,5} )?<tool_call>\n\{"name": "look", "arguments": \{"at": ?"(sky|sea)"(, "n": [1-9])?\}\}\n</tool_call>"#,
    r#"(\n<tool_call>\n\{"name": "look", "arguments": \{"n":7\}\}\n</tool_call>)?"#
);
const ALOUD: &str = r"<think>\n[a-z]{2,6} [a-z]{2,6}\n</think>\n\n[a-z]{2,6}";
const WORDS: &str = "[a-z]{2,6} [a-z]{2,6}\n?";

/// The shape of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Noise of this many tokens.
    Cut(u32),
    /// Noise with an end token.
    Ended,
    /// Some words.
    Words,
    /// One or two tool calls.
    Calls,
    /// A thought and some words, all of it as text.
    Aloud,
}

impl Model {
    /// Returns the keys of a chat request that lead to such an answer.
    pub(super) fn request(&self, shape: Shape, thinking: bool) -> Value {
        let mut bias: Map<String, Value> =
            self.special.clone().map(|id| (id.to_string(), json!(-100))).collect();
        // If a grammar allows end tokens only, the model samples this one.
        bias.insert(self.end_of_turn.to_string(), json!(-40));
        let mut keys = json!({"temperature": 1, "max_tokens": 160});
        match shape {
            Shape::Cut(tokens) => keys["max_tokens"] = json!(tokens),
            Shape::Ended => {
                keys["max_tokens"] = json!(40);
                bias.insert(self.end_of_turn.to_string(), json!(self.often));
            }
            Shape::Words => keys["structured_outputs"] = json!({"regex": WORDS}),
            Shape::Calls => keys["structured_outputs"] = json!({"regex": CALLS}),
            Shape::Aloud => keys["structured_outputs"] = json!({"regex": ALOUD}),
        }
        if thinking {
            // A grammar begins after the thought.
            bias.insert(self.end_of_thought.to_string(), json!(self.often));
        } else if shape != Shape::Aloud {
            keys["chat_template_kwargs"] = json!({"enable_thinking": false});
        }
        keys["logit_bias"] = Value::Object(bias);
        keys
    }
}

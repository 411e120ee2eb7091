//! The tokens of one answer, random or from the script, and the role of each part of its text.

use super::random::Random;
use super::script::Reply;
use super::template::CALL_FRAME;
use super::tokens::{END_OF_TURN, VOCABULARY_SIZE, control_text, encode, token_bytes};

/// A complete answer, as long as the model would make it without limits.
#[derive(Debug)]
pub(super) struct SimAnswer {
    /// The tokens, including the end of the turn.
    pub(super) tokens: Vec<u32>,
    /// The text of the tokens, without control tokens.
    pub(super) text: String,
    /// The parts of the text, in order and without gaps.
    pub(super) parts: Vec<Part>,
    /// The finish reason that the script sets.
    pub(super) finish_reason: Option<String>,
}

/// A part of an answer's text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The end in bytes. The part starts where the previous part ends.
    pub(super) end: usize,
    /// The role of the part.
    pub(super) role: Role,
}

/// The parsers' classification of a part. Tool calls are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Goes into `content`.
    Content,
    /// Goes into `reasoning`.
    Reasoning,
    /// A mark around reasoning, which appears in no field.
    ThinkMark,
    /// The frame of a tool call, which appears in no field.
    CallFrame(u32),
    /// A tool call's name.
    CallName(u32),
    /// A tool call's arguments.
    CallArguments(u32),
}

impl SimAnswer {
    /// Creates a scripted answer. Without `tools` in the request its tool calls stay text, because vLLM's parser does
    /// not run then. Without `thinking` the model does not reason.
    pub(super) fn scripted(reply: &Reply, tools: bool, thinking: bool) -> Self {
        let mut answer = Self {
            tokens: Vec::new(),
            text: String::new(),
            parts: Vec::new(),
            finish_reason: reply.finish_reason.clone(),
        };
        if let Some(reasoning) = reply.reasoning.as_ref().filter(|_| thinking) {
            answer.push("<think>", Role::ThinkMark);
            answer.push(reasoning, Role::Reasoning);
            answer.push("</think>", Role::ThinkMark);
        }
        answer.push(&reply.content, Role::Content);
        let (before, between, after) = CALL_FRAME;
        for (index, call) in (0..).zip(&reply.tool_calls) {
            let role = |role: Role| if tools { role } else { Role::Content };
            answer.push(before, role(Role::CallFrame(index)));
            answer.push(&call.name, role(Role::CallName(index)));
            answer.push(between, role(Role::CallFrame(index)));
            answer.push(&call.arguments, role(Role::CallArguments(index)));
            answer.push(after, role(Role::CallFrame(index)));
        }
        answer.tokens = encode(&answer.text);
        answer.tokens.push(END_OF_TURN);
        answer
    }

    fn push(&mut self, text: &str, role: Role) {
        self.text.push_str(text);
        let end = self.text.len();
        match self.parts.last_mut() {
            // Join neighbours of one role, so that each stretch of a role is one part.
            Some(last) if last.role == role => last.end = end,
            _ => self.parts.push(Part { end, role }),
        }
    }

    /// Returns an empty answer: a start for [`SimAnswer::ramble`].
    pub(super) fn empty() -> Self {
        Self { tokens: Vec::new(), text: String::new(), parts: Vec::new(), finish_reason: None }
    }

    /// Appends random words until the answer has at least `length` tokens, or until an end of turn if `ends`. Some
    /// words have another spelling than the tokenizer's, as with real models. An agent that sends the text back gets
    /// other ids.
    pub(super) fn ramble(&mut self, length: u32, ends: bool, random: &mut Random) {
        let length = length as usize;
        let mut bytes = Vec::new();
        while self.tokens.len() < length {
            if ends && self.tokens.len() > SHORTEST && random.one_in(MEAN_LENGTH) {
                self.tokens.push(END_OF_TURN);
                break;
            }
            let from = self.tokens.len();
            word(&mut self.tokens, random);
            bytes.extend(self.tokens.iter().skip(from).flat_map(|id| token_bytes(*id)).copied());
        }
        self.push(&String::from_utf8_lossy(&bytes), Role::Content);
    }
}

/// A random answer has more tokens than this, and about `MEAN_LENGTH` tokens on average.
const SHORTEST: usize = 3;
const MEAN_LENGTH: usize = 48;

fn word(tokens: &mut Vec<u32>, random: &mut Random) {
    const RARE: [&str; 6] = [" café", " naïve", " 日本", " 🎉", " Größe", " →"];
    match random.below(32) {
        0 => tokens.extend(encode(RARE.get(random.below(RARE.len())).copied().unwrap_or(" é"))),
        1 => tokens.extend(encode([", ", ".\n", "\n\n", ": "].get(random.below(4)).copied().unwrap_or(" "))),
        // Single bytes: a spelling that the tokenizer never writes.
        2 | 3 => tokens.extend(token_bytes(words_piece(random)).iter().map(|byte| u32::from(*byte))),
        _ => tokens.push(words_piece(random)),
    }
}

/// Returns a random piece that starts with a space and a letter.
fn words_piece(random: &mut Random) -> u32 {
    loop {
        let id = random.below(VOCABULARY_SIZE as usize) as u32;
        let is_word = matches!(token_bytes(id), [b' ', letter, _, ..] if letter.is_ascii_alphabetic());
        if is_word && control_text(id).is_none() {
            return id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::decode;

    #[test]
    fn random_answers_are_printable_and_end() {
        let mut ended = 0;
        let mut respelled = 0;
        for seed in 0..50 {
            let mut answer = SimAnswer::empty();
            answer.ramble(400, true, &mut Random::new(seed, 0));
            ended += usize::from(answer.tokens.last() == Some(&END_OF_TURN));
            let text = decode(&answer.tokens).replace("<|im_end|>", "");
            assert_eq!(text, answer.text);
            assert!(!text.contains('\u{fffd}') && !text.is_empty());
            respelled += usize::from(
                encode(&text) != answer.tokens.strip_suffix(&[END_OF_TURN]).unwrap_or(&answer.tokens),
            );
        }
        assert!(ended > 45, "{ended} of 50 answers ended");
        assert!(respelled > 25, "{respelled} of 50 answers would be tokenised differently");
    }

    #[test]
    fn without_an_end_the_length_is_reached() {
        let mut answer = SimAnswer::empty();
        answer.ramble(100, false, &mut Random::new(3, 0));
        assert!(answer.tokens.len() >= 100 && !answer.tokens.contains(&END_OF_TURN));
    }
}

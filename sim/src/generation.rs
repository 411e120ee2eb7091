//! Samples an answer token by token: the text that becomes visible with each token, and the end of the answer. The JSON
//! answer and the stream use the same steps.

use std::ops::Range;

use serde::Serialize;

use super::answer::{Part, Role, SimAnswer};
use super::random::Random;
use super::request::Limits;
use super::tokens::{END_OF_TURN, control_text, token_bytes};

/// An answer that is being sampled.
#[derive(Debug)]
pub(super) struct Generation {
    answer: SimAnswer,
    limits: Limits,
    random: Random,
    /// Tokens sampled so far.
    sampled: usize,
    /// The bytes of text of these tokens. The last character may be incomplete.
    bytes: usize,
    /// The bytes that the caller has seen. The others are held back because a stop text might begin there.
    shown: usize,
    reasoning_tokens: u32,
    finish: Option<Finish>,
}

/// The reason why an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finish {
    /// `stop`, `length`, `tool_calls`, or the reason that the script sets.
    pub(super) reason: String,
    /// The stop text or stop token that ended the answer, if any.
    pub(super) stop_reason: Option<StopReason>,
}

/// The reason that stopped an answer before the end of its turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum StopReason {
    /// An entry of `stop`.
    Text(String),
    /// An entry of `stop_token_ids`.
    Token(u32),
}

/// One sampled token.
#[derive(Debug)]
pub(super) struct SampledToken {
    /// The id of the token.
    pub(super) token: u32,
    /// The logprob, at most 0.
    pub(super) logprob: f32,
    /// The range of the token's own text in the answer's text. Empty while a character is incomplete.
    own: Range<usize>,
    /// The range of the text that became visible.
    visible: Range<usize>,
    /// Set for the last token.
    pub(super) finish: Option<Finish>,
}

impl Generation {
    /// Starts to sample `answer` within `limits`. `random` produces the logprobs.
    pub(super) fn new(answer: SimAnswer, limits: Limits, random: Random) -> Self {
        Self { answer, limits, random, sampled: 0, bytes: 0, shown: 0, reasoning_tokens: 0, finish: None }
    }

    /// Samples a token. Returns `None` after the end of the answer.
    pub(super) fn step(&mut self) -> Option<SampledToken> {
        if self.finish.is_some() {
            return None;
        }
        let token = *self.answer.tokens.get(self.sampled)?;
        self.sampled += 1;
        if self.role_at(self.bytes) == Some(Role::Reasoning) && control_text(token).is_none() {
            self.reasoning_tokens += 1;
        }
        let before = self.whole(self.bytes);
        if control_text(token).is_none() {
            self.bytes += token_bytes(token).len();
        }
        let own = before..self.whole(self.bytes);
        let (visible_end, finish) = self.ended(token, &own);
        let visible = self.shown..visible_end.max(self.shown);
        self.shown = visible.end;
        self.finish = finish.clone();
        Some(SampledToken { token, logprob: logprob(&mut self.random), own, visible, finish })
    }

    /// Returns the end of the visible text after `token`, and why the answer ended if `token` is the last.
    fn ended(&self, token: u32, own: &Range<usize>) -> (usize, Option<Finish>) {
        if let Some((stop, end)) = self.stop_text(own) {
            return (end, Some(self.finish("stop", Some(StopReason::Text(stop)))));
        }
        let finish = if token == END_OF_TURN && !self.limits.ignore_eos {
            self.finish("stop", None)
        } else if self.limits.stop_token_ids.contains(&token) {
            // vLLM returns the stop token's id and omits its text.
            return (own.start, Some(self.finish("stop", Some(StopReason::Token(token)))));
        } else if self.sampled >= self.limits.max_tokens as usize {
            self.finish("length", None)
        } else {
            return (self.without_held_back(own.end), None);
        };
        (own.end, Some(finish))
    }

    fn finish(&self, reason: &str, stop_reason: Option<StopReason>) -> Finish {
        // Complete tool calls determine the reason, whatever ended the answer.
        let reason = if self.calls_complete() > 0 { "tool_calls" } else { reason };
        let reason = self.answer.finish_reason.clone().unwrap_or_else(|| reason.to_owned());
        Finish { reason, stop_reason }
    }

    /// Returns the stop text that `own` completed, and the end of the visible text because of that stop text.
    fn stop_text(&self, own: &Range<usize>) -> Option<(String, usize)> {
        if own.is_empty() {
            return None;
        }
        self.limits.stop.iter().find_map(|stop| {
            // The stop text may begin in earlier tokens.
            let from = self.answer.text.floor_char_boundary(own.start.saturating_sub(stop.len() - 1));
            let found = from + self.answer.text.get(from..own.end)?.find(stop.as_str())?;
            let end = if self.limits.include_stop { found + stop.len() } else { found };
            Some((stop.clone(), end))
        })
    }

    /// Returns the end of the text that is not held back. vLLM holds back one character fewer than the longest stop
    /// text has.
    fn without_held_back(&self, end: usize) -> usize {
        if self.limits.include_stop {
            return end;
        }
        let held = self.limits.stop.iter().map(|stop| stop.chars().count() - 1).max().unwrap_or(0);
        let text = self.answer.text.get(..end).unwrap_or_default();
        held.checked_sub(1)
            .map_or(end, |last| text.char_indices().rev().nth(last).map_or(0, |(index, _)| index))
    }

    /// Returns `bytes` without an incomplete character.
    fn whole(&self, bytes: usize) -> usize {
        self.answer.text.floor_char_boundary(bytes)
    }

    fn role_at(&self, byte: usize) -> Option<Role> {
        self.answer.parts.iter().find(|part| part.end > byte).map(|part| part.role)
    }

    /// Returns the number of tool calls that were sampled to their end.
    fn calls_complete(&self) -> u32 {
        let framed = |part: &Part| match part.role {
            Role::CallFrame(index) if part.end <= self.bytes => Some(index),
            _ => None,
        };
        // The frame of a call has three parts: before the name, between name and arguments, and after the arguments.
        (self.answer.parts.iter().filter_map(framed).count() / 3) as u32
    }

    /// Returns the parts of the text that became visible with a step, and their roles. A tool's name becomes visible as
    /// a whole.
    pub(super) fn visible<'a>(&'a self, step: &SampledToken) -> impl Iterator<Item = (Role, &'a str)> {
        let range = step.visible.clone();
        let mut start = 0;
        self.answer.parts.iter().filter_map(move |part| {
            let begin = std::mem::replace(&mut start, part.end);
            let (from, to) = match part.role {
                Role::CallName(_) if range.contains(&(part.end - 1)) => (begin, part.end),
                Role::CallName(_) => return None,
                _ => (begin.max(range.start), part.end.min(range.end)),
            };
            let text = self.answer.text.get(from..to)?;
            (!text.is_empty()).then_some((part.role, text))
        })
    }

    /// Returns all visible text with its roles. Truncated tool calls are content.
    pub(super) fn message(&self) -> impl Iterator<Item = (Role, &str)> {
        let complete = self.calls_complete();
        let mut start = 0;
        self.answer.parts.iter().filter_map(move |part| {
            let begin = std::mem::replace(&mut start, part.end);
            let text = self.answer.text.get(begin..part.end.min(self.shown))?;
            let role = match part.role {
                Role::CallFrame(call) | Role::CallName(call) | Role::CallArguments(call)
                    if call >= complete =>
                {
                    Role::Content
                }
                role => role,
            };
            (!text.is_empty()).then_some((role, text))
        })
    }

    /// Returns a step's own text: empty while a character is incomplete, or the spelling of a control token.
    pub(super) fn own_text(&self, step: &SampledToken) -> &str {
        control_text(step.token).unwrap_or_else(|| self.answer.text.get(step.own.clone()).unwrap_or_default())
    }

    /// Returns the ids sampled so far.
    pub(super) fn token_ids(&self) -> &[u32] {
        self.answer.tokens.get(..self.sampled).unwrap_or_default()
    }

    /// Returns the number of tokens sampled so far, and the number of reasoning tokens among them.
    pub(super) fn counts(&self) -> (u32, u32) {
        (self.sampled as u32, self.reasoning_tokens)
    }

    /// Returns why the answer ended, or `None` before its end.
    pub(super) fn finished(&self) -> Option<&Finish> {
        self.finish.as_ref()
    }
}

/// Returns a plausible logprob: mostly near 0, with a long tail, never 0.
fn logprob(random: &mut Random) -> f32 {
    let sharpness = random.unit();
    (random.unit().ln() * sharpness * 2.0 - 1e-4) as f32
}

/// Returns plausible, falling logprobs of `count` other tokens. Their probabilities sum to at most the rest that the
/// sampled token leaves.
pub(super) fn alternatives(
    step: &SampledToken,
    count: usize,
    vocabulary: u32,
) -> impl Iterator<Item = (u32, f32)> {
    let left = 1.0 - f64::from(step.logprob).exp();
    let token = step.token;
    (1..).zip(0..count).map(move |(rank, _): (u32, usize)| {
        // At most 20 steps of seven do not wrap around the vocabulary, so all ids differ.
        let other = (token + rank * 7) % vocabulary;
        (other, (left.ln() - f64::from(rank) * std::f64::consts::LN_2) as f32)
    })
}

//! Sampling, token by token: what becomes visible with each, and when the answer ends. The JSON answer and the stream are made
//! from the same steps.

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
    /// Bytes of text that they make, the last character possibly incomplete.
    bytes: usize,
    /// Bytes that the caller has seen; the others are held back because a stop text might begin there.
    shown: usize,
    reasoning_tokens: u32,
    finish: Option<Finish>,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finish {
    /// `stop`, `length`, `tool_calls`, or what the script says.
    pub(super) reason: String,
    /// The stop text or stop token, where one ended it.
    pub(super) stop_reason: Option<StopReason>,
}

/// What stopped an answer, beside the end of the turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum StopReason {
    /// One of `stop`.
    Text(String),
    /// One of `stop_token_ids`.
    Token(u32),
}

/// One sampled token.
#[derive(Debug)]
pub(super) struct SampledToken {
    /// Its id.
    pub(super) token: u32,
    /// At most 0.
    pub(super) logprob: f32,
    /// Its own text within the answer's, empty while a character is incomplete.
    own: Range<usize>,
    /// The text that became visible.
    visible: Range<usize>,
    /// Set with the last token.
    pub(super) finish: Option<Finish>,
}

impl Generation {
    /// Starts to sample `answer` within `limits`. `random` makes the logprobs.
    pub(super) fn new(answer: SimAnswer, limits: Limits, random: Random) -> Self {
        Self { answer, limits, random, sampled: 0, bytes: 0, shown: 0, reasoning_tokens: 0, finish: None }
    }

    /// Samples a token; nothing once the answer has ended.
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

    /// How far the text is visible after `token`, and whether it was the last.
    fn ended(&self, token: u32, own: &Range<usize>) -> (usize, Option<Finish>) {
        if let Some((stop, end)) = self.stop_text(own) {
            return (end, Some(self.finish("stop", Some(StopReason::Text(stop)))));
        }
        let finish = if token == END_OF_TURN && !self.limits.ignore_eos {
            self.finish("stop", None)
        } else if self.limits.stop_token_ids.contains(&token) {
            // vLLM keeps the stop token's id and leaves out its text.
            return (own.start, Some(self.finish("stop", Some(StopReason::Token(token)))));
        } else if self.sampled >= self.limits.max_tokens as usize {
            self.finish("length", None)
        } else {
            return (self.without_held_back(own.end), None);
        };
        (own.end, Some(finish))
    }

    fn finish(&self, reason: &str, stop_reason: Option<StopReason>) -> Finish {
        let reason = if self.calls_complete() > 0 { "tool_calls" } else { reason };
        let reason = self.answer.finish_reason.clone().unwrap_or_else(|| reason.to_owned());
        Finish { reason, stop_reason }
    }

    /// The stop text that `own` completed, and where the visible text ends because of it.
    fn stop_text(&self, own: &Range<usize>) -> Option<(String, usize)> {
        if own.is_empty() {
            return None;
        }
        self.limits.stop.iter().find_map(|stop| {
            let from = self.answer.text.floor_char_boundary(own.start.saturating_sub(stop.len() - 1));
            let found = from + self.answer.text.get(from..own.end)?.find(stop.as_str())?;
            let end = if self.limits.include_stop { found + stop.len() } else { found };
            Some((stop.clone(), end))
        })
    }

    /// vLLM holds back one character less than the longest stop text has.
    fn without_held_back(&self, end: usize) -> usize {
        if self.limits.include_stop {
            return end;
        }
        let held = self.limits.stop.iter().map(|stop| stop.chars().count() - 1).max().unwrap_or(0);
        let text = self.answer.text.get(..end).unwrap_or_default();
        held.checked_sub(1)
            .map_or(end, |last| text.char_indices().rev().nth(last).map_or(0, |(index, _)| index))
    }

    /// `bytes` without an incomplete character.
    fn whole(&self, bytes: usize) -> usize {
        self.answer.text.floor_char_boundary(bytes)
    }

    fn role_at(&self, byte: usize) -> Option<Role> {
        self.answer.parts.iter().find(|part| part.end > byte).map(|part| part.role)
    }

    /// How many tool calls were sampled to their end.
    fn calls_complete(&self) -> u32 {
        let framed = |part: &Part| match part.role {
            Role::CallFrame(index) if part.end <= self.bytes => Some(index),
            _ => None,
        };
        // A call's frame opens it, stands between name and arguments, and closes it: three parts.
        (self.answer.parts.iter().filter_map(framed).count() / 3) as u32
    }

    /// The stretches of text that became visible with a step, and what they are. A tool's name becomes visible as a whole.
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

    /// All that is visible, tool calls that were cut off as the text that they are.
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

    /// A step's own text: empty while a character is incomplete, the spelling of a control token.
    pub(super) fn own_text(&self, step: &SampledToken) -> &str {
        control_text(step.token).unwrap_or_else(|| self.answer.text.get(step.own.clone()).unwrap_or_default())
    }

    /// The ids sampled so far.
    pub(super) fn token_ids(&self) -> &[u32] {
        self.answer.tokens.get(..self.sampled).unwrap_or_default()
    }

    /// Tokens sampled so far, and how many of them are reasoning.
    pub(super) fn counts(&self) -> (u32, u32) {
        (self.sampled as u32, self.reasoning_tokens)
    }

    /// Why the answer ended, once it has.
    pub(super) fn finished(&self) -> Option<&Finish> {
        self.finish.as_ref()
    }
}

/// A plausible logprob: mostly near 0, with a long tail, never 0.
fn logprob(random: &mut Random) -> f32 {
    let sharpness = random.unit();
    (random.unit().ln() * sharpness * 2.0 - 1e-4) as f32
}

/// Plausible logprobs of `count` other tokens, falling, all together at most what `sampled` leaves over.
pub(super) fn alternatives(
    step: &SampledToken,
    count: usize,
    vocabulary: u32,
) -> impl Iterator<Item = (u32, f32)> {
    let left = 1.0 - f64::from(step.logprob).exp();
    let token = step.token;
    (1..).zip(0..count).map(move |(rank, _): (u32, usize)| {
        // Twenty steps of seven do not lead around the vocabulary: each id is another one.
        let other = (token + rank * 7) % vocabulary;
        (other, (left.ln() - f64::from(rank) * std::f64::consts::LN_2) as f32)
    })
}

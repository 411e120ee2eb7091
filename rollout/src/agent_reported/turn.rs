//! One turn of an agent's own record: its lists, and their defects.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::call::{Call, CallRole, Choice, Flaw};
use crate::token::{Logprob, TokenId};
use crate::token_list::{TokenList, common_prefix};

/// Turns of one conversation, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The owner of the conversation: `main` or `sub_agent`.
    pub role: CallRole,
    /// The turns that have tokens, or a list for tokens.
    pub turns: Vec<ReportedTurn>,
}

/// One request of the agent and its answer, as far as the agent recorded it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedTurn {
    /// The model, if named.
    pub model: Option<String>,
    /// All tokens of the prompt. Empty if unknown.
    pub prompt: TokenList,
    /// The sampled tokens.
    pub answer: Vec<TokenId>,
    /// The logprobs of the answer's tokens, `None` for a number that is not a logprob.
    pub logprobs: Vec<Option<Logprob>>,
    /// Whether the prompt's ids are placeholders for images or sounds.
    pub has_media: bool,
    /// The missing or invalid parts.
    pub flaws: Vec<Flaw>,
}

impl ReportedTurn {
    /// Returns `call` with the content of this turn.
    pub(super) fn told_in(self, call: Call) -> Call {
        let choice = Choice { token_ids: self.answer, logprobs: self.logprobs, ..Choice::default() };
        Call {
            model: self.model.unwrap_or_default(),
            prompt_token_ids: self.prompt,
            choices: vec![choice],
            has_media: self.has_media,
            flaws: self.flaws,
            ..call
        }
    }
}

/// The undecoded JSON lists of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawTurn<'a> {
    pub(super) prompt: Option<&'a RawValue>,
    pub(super) answer: Option<&'a RawValue>,
    pub(super) logprobs: Option<&'a RawValue>,
}

impl RawTurn<'_> {
    /// Whether the turn has no list of tokens.
    pub(super) fn is_silent(&self) -> bool {
        [self.prompt, self.answer, self.logprobs].into_iter().all(|list| list.is_none_or(is_null))
    }

    /// Decodes the turn. Its prompt shares memory with that of the turn before as far as both are equal. `flaws` are
    /// the flaws that the caller already knows.
    pub(super) fn read(&self, before: Option<&ReportedTurn>, mut flaws: Vec<Flaw>) -> ReportedTurn {
        let mut take = |flaw: Flaw| {
            if !flaws.contains(&flaw) {
                flaws.push(flaw);
            }
        };
        let prompt: Vec<TokenId> = list(self.prompt, Flaw::MissingPromptIds, &mut take);
        if prompt.is_empty() {
            take(Flaw::MissingPromptIds); // A model cannot answer an empty prompt.
        }
        let answer: Vec<TokenId> = list(self.answer, Flaw::MissingTokenIds, &mut take);
        let logprobs: Vec<Option<f64>> = list(self.logprobs, Flaw::MissingLogprobs, &mut take);
        let logprobs: Vec<_> = logprobs.into_iter().map(logprob).collect();
        // Missing logprobs are a separate flaw, so an empty list is no mismatch.
        if !logprobs.is_empty() && logprobs.len() != answer.len() {
            take(Flaw::LengthMismatch);
        }
        if logprobs.is_empty() && !answer.is_empty() {
            take(Flaw::MissingLogprobs);
        }
        // An invalid logprob affects its own token only, so the other tokens remain trainable.
        if logprobs.contains(&None) {
            take(Flaw::InvalidLogprob);
        }
        // A turn repeats the prompt of the turn before, and a copy of each would need memory for turns × context.
        let prompt = match before {
            Some(before) => sharing(&before.prompt, &prompt),
            None => prompt.into(),
        };
        ReportedTurn { prompt, answer, logprobs, flaws, ..ReportedTurn::default() }
    }
}

/// Returns the list, or an empty one if it is missing or invalid, and then reports the flaw to `take`.
fn list<T: DeserializeOwned>(raw: Option<&RawValue>, missing: Flaw, take: &mut impl FnMut(Flaw)) -> Vec<T> {
    match raw.filter(|raw| !is_null(raw)).map(|raw| serde_json::from_str(raw.get())) {
        Some(Ok(list)) => list,
        Some(Err(_)) => {
            take(missing);
            take(Flaw::Unreadable);
            Vec::new()
        }
        None => {
            take(missing);
            Vec::new()
        }
    }
}

fn is_null(raw: &RawValue) -> bool {
    raw.get() == "null"
}

/// Converts a logprob. The upstream's values are 32-bit floats, and 64 bits represent these exactly.
fn logprob(value: Option<f64>) -> Option<Logprob> {
    Logprob::try_from(value? as f32).ok()
}

/// Returns the ids as a list that shares its beginning with `other`.
fn sharing(other: &TokenList, ids: &[TokenId]) -> TokenList {
    let mut shared = 0;
    for slice in other.slices() {
        let alike = common_prefix(slice, ids.get(shared..).unwrap_or_default());
        shared += alike;
        if alike < slice.len() {
            break;
        }
    }
    let mut list = other.prefix(shared);
    list.extend_from_slice(ids.get(shared..).unwrap_or_default());
    list
}

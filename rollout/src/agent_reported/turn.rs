//! One turn as an agent tells it: the lists that are there, and what is wrong with them.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::call::{Call, CallRole, Choice, Flaw};
use crate::token::{Logprob, TokenId};
use crate::token_list::{TokenList, common_prefix};

/// Turns of one conversation, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Whose conversation it is: `main` or `sub_agent`.
    pub role: CallRole,
    /// Each with tokens, or the claim of some.
    pub turns: Vec<ReportedTurn>,
}

/// One request of the agent and its answer, as far as it tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedTurn {
    /// The model, where it is named.
    pub model: Option<String>,
    /// All that was asked with. Empty where it is not known.
    pub prompt: TokenList,
    /// What was sampled.
    pub answer: Vec<TokenId>,
    /// Of the answer's tokens; `None` in place of a number that is no logprob.
    pub logprobs: Vec<Option<Logprob>>,
    /// The prompt's ids stand for images or sounds that are not there.
    pub has_media: bool,
    /// What is missing or wrong.
    pub flaws: Vec<Flaw>,
}

impl ReportedTurn {
    /// That call, which happened as this turn says.
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

/// The lists of a turn as they stand in the JSON, not looked into yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawTurn<'a> {
    pub(super) prompt: Option<&'a RawValue>,
    pub(super) answer: Option<&'a RawValue>,
    pub(super) logprobs: Option<&'a RawValue>,
}

impl RawTurn<'_> {
    /// Whether it says nothing of tokens.
    pub(super) fn is_silent(&self) -> bool {
        [self.prompt, self.answer, self.logprobs].into_iter().all(|list| list.is_none_or(is_null))
    }

    /// The turn, its prompt sharing memory with that of the turn before as far as they are the same. `flaws` are known
    /// already.
    pub(super) fn read(&self, before: Option<&ReportedTurn>, mut flaws: Vec<Flaw>) -> ReportedTurn {
        let mut take = |flaw: Flaw| {
            if !flaws.contains(&flaw) {
                flaws.push(flaw);
            }
        };
        let prompt: Vec<TokenId> = list(self.prompt, Flaw::MissingPromptIds, &mut take);
        if prompt.is_empty() {
            take(Flaw::MissingPromptIds); // no model answers to nothing
        }
        let answer: Vec<TokenId> = list(self.answer, Flaw::MissingTokenIds, &mut take);
        let logprobs: Vec<Option<f64>> = list(self.logprobs, Flaw::MissingLogprobs, &mut take);
        let logprobs: Vec<_> = logprobs.into_iter().map(logprob).collect();
        if !logprobs.is_empty() && logprobs.len() != answer.len() {
            take(Flaw::LengthMismatch);
        }
        if logprobs.is_empty() && !answer.is_empty() {
            take(Flaw::MissingLogprobs);
        }
        if logprobs.contains(&None) {
            take(Flaw::InvalidLogprob);
        }
        let prompt = match before {
            Some(before) => sharing(&before.prompt, &prompt),
            None => prompt.into(),
        };
        ReportedTurn { prompt, answer, logprobs, flaws, ..ReportedTurn::default() }
    }
}

/// The list; empty where it is not there or holds something else, which `take` is told.
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

/// Upstream's logprobs are 32-bit floats, which agents keep in 64 bits without loss.
fn logprob(value: Option<f64>) -> Option<Logprob> {
    Logprob::try_from(value? as f32).ok()
}

/// The ids as a list that has its beginning in common with another.
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

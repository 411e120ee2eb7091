//! Compares rows with the calls that they came from.

use std::collections::{HashMap, HashSet};

use super::row::{AnswerKey, span_tokens};
use super::trial::first_difference;
use super::{Findings, Invariant};
use crate::call::{Call, CallRole, CallStatus, Choice};
use crate::forest::Forest;
use crate::origin::Origin;
use crate::roles::roles;
use crate::row::{CallSpan, RolloutRow};
use crate::token::TokenId;
use crate::training::TrainingPolicy;

/// Every captured call of one trial, by name.
#[derive(Debug)]
pub struct Captured<'a> {
    calls: HashMap<&'a str, &'a Call>,
    /// By call and choice index.
    roles: HashMap<(&'a str, u32), CallRole>,
    training: Option<TrainingPolicy>,
}

impl<'a> Captured<'a> {
    /// Takes all calls of one trial.
    pub fn new(calls: impl IntoIterator<Item = &'a Call>) -> Self {
        let calls: HashMap<_, _> = calls.into_iter().map(|call| (call.call_id.as_str(), call)).collect();
        let forest = Forest::build(calls.values().copied());
        let answers = forest.nodes().iter().map(|node| (node.call.call_id.as_str(), node.choice.index));
        let roles = answers.zip(roles(&forest)).collect();
        Self { calls, roles, training: None }
    }

    /// Adds the trial's training policy, if known.
    #[must_use]
    pub fn training(self, training: TrainingPolicy) -> Self {
        Self { training: Some(training), ..self }
    }

    /// Returns the role of an answer. The forest has no node for an answer without tokens, and then the call's own role
    /// counts.
    fn role(&self, call: &Call, choice: &Choice) -> CallRole {
        self.roles.get(&(call.call_id.as_str(), choice.index)).copied().unwrap_or(call.role)
    }

    fn answer(&self, span: &CallSpan) -> Option<(&'a Call, &'a Choice)> {
        let call = *self.calls.get(span.call_id.as_str())?;
        let choice =
            call.choices.iter().find(|choice| i64::from(choice.index) == i64::from(span.choice_index))?;
        Some((call, choice))
    }

    /// Returns the answers that must be in a branch: those of complete calls, with prompt ids and sampled ids.
    pub(super) fn answers(&self) -> Vec<AnswerKey> {
        let is_whole =
            |call: &&Call| call.status == CallStatus::Complete && !call.prompt_token_ids.is_empty();
        let calls = self.calls.values().copied().filter(is_whole);
        let answers = calls.flat_map(|call| {
            let choices = call.choices.iter().filter(|choice| !choice.token_ids.is_empty());
            choices.map(|choice| (call.call_id.to_string(), i32::try_from(choice.index).unwrap_or(i32::MAX)))
        });
        let mut answers: Vec<_> = answers.collect();
        answers.sort();
        answers
    }
}

/// Reports every expected answer that no row names.
pub(super) fn check_presence(expected: &[AnswerKey], named: &HashSet<AnswerKey>, found: &mut Findings<'_>) {
    for answer in expected.iter().filter(|answer| !named.contains(*answer)) {
        let (call_id, choice_index) = answer;
        found.add(Invariant::CapturedPresence, || {
            format!("choice {choice_index} of call {call_id} is complete and in no branch")
        });
    }
}

/// Compares one row with the captured calls of its trial.
pub(super) fn check(row: &RolloutRow, is_aligned: bool, captured: &Captured<'_>, found: &mut Findings<'_>) {
    for (index, span) in row.calls.iter().enumerate() {
        let Some((call, choice)) = captured.answer(span) else {
            let (call_id, choice_index) = (&span.call_id, span.choice_index);
            found.add(Invariant::CapturedCall, || {
                format!("calls[{index}]: choice {choice_index} of call {call_id} was not captured")
            });
            continue;
        };
        let role = captured.role(call, choice);
        origin(index, row, call, found);
        facts(index, span, (choice, role), found);
        model(index, span, call, found);
        // Positions have no meaning if the lists differ in length. That breach is already reported.
        if is_aligned {
            prompt(index, span, row, call, found);
            answer(index, span, row, choice, found);
            versions(index, span, row, (call, choice), found);
            trainable(index, span, row, call, choice, found);
            if captured.training.is_some_and(|training| !training.trains(role)) {
                masked(index, span, row, role, found);
            }
        }
    }
}

fn origin(index: usize, row: &RolloutRow, call: &Call, found: &mut Findings<'_>) {
    let (here, of_call) = (Origin::of(row), call.dialect.origin());
    // An unknown origin is a breach of another invariant.
    found.require(here.is_none_or(|here| here == of_call), Invariant::CapturedOrigin, || {
        format!("origin is {:?}, that of calls[{index}] is {:?}", row.origin, of_call.as_str())
    });
}

fn model(index: usize, span: &CallSpan, call: &Call, found: &mut Findings<'_>) {
    // Files of an earlier rolltap version name no model.
    let Some(here) = &span.model else { return };
    found.require(here == call.served_model(), Invariant::CapturedModel, || {
        format!("calls[{index}].model is {here:?}, captured was {:?}", call.served_model())
    });
}

fn facts(index: usize, span: &CallSpan, (choice, role): (&Choice, CallRole), found: &mut Findings<'_>) {
    found.require(span.role == role.as_str(), Invariant::CapturedRole, || {
        format!("calls[{index}].role is {:?}, by what was captured it is {:?}", span.role, role.as_str())
    });
    found.require(span.finish_reason == choice.finish_reason, Invariant::CapturedAnswer, || {
        let (here, captured) = (&span.finish_reason, &choice.finish_reason);
        format!("calls[{index}].finish_reason is {here:?}, captured was {captured:?}")
    });
}

fn prompt(index: usize, span: &CallSpan, row: &RolloutRow, call: &Call, found: &mut Findings<'_>) {
    let before = usize::try_from(span.start).ok().and_then(|start| row.token_ids.get(..start));
    // A start outside the row is a breach of `SpanBounds`.
    let Some(before) = before else { return };
    if let Some(at) = first_difference(&ids(call.prompt_token_ids.iter()), before) {
        found.add(Invariant::CapturedPrompt, || {
            let (here, captured) = (before.get(at), call.prompt_token_ids.get(at).map(|id| id.as_i32()));
            let lengths = format!(
                "{} tokens stand before it, {} were captured",
                before.len(),
                call.prompt_token_ids.len()
            );
            format!(
                "calls[{index}]: token {at} of the prompt is {here:?}, captured was {captured:?}; {lengths}"
            )
        });
    }
}

fn answer(index: usize, span: &CallSpan, row: &RolloutRow, choice: &Choice, found: &mut Findings<'_>) {
    let Some(tokens) = span_tokens(span, &row.token_ids) else { return };
    if let Some(at) = first_difference(&ids(&choice.token_ids), tokens) {
        found.add(Invariant::CapturedAnswer, || {
            let (here, captured) = (tokens.get(at), choice.token_ids.get(at).map(|id| id.as_i32()));
            format!("calls[{index}]: sampled token {at} is {here:?}, captured was {captured:?}")
        });
    }
    let captured = choice.aligned_logprobs().unwrap_or_default();
    for (offset, &logprob) in span_tokens(span, &row.logprobs).unwrap_or_default().iter().enumerate() {
        let captured = captured.get(offset).copied().flatten();
        let expected = captured.map_or(0.0, |logprob| logprob.get());
        // Rows must have the captured bits: a rounded logprob would pass a comparison with a tolerance.
        found.require(logprob.to_bits() == expected.to_bits(), Invariant::CapturedAnswer, || {
            let captured = captured.map(|logprob| logprob.get());
            format!(
                "calls[{index}]: logprob of sampled token {offset} is {logprob}, captured was {captured:?}"
            )
        });
    }
}

fn versions(
    index: usize,
    span: &CallSpan,
    row: &RolloutRow,
    (call, choice): (&Call, &Choice),
    found: &mut Findings<'_>,
) {
    let versions = span_tokens(span, &row.token_version).unwrap_or_default();
    for (offset, (&version, captured)) in versions.iter().zip(call.token_versions(choice)).enumerate() {
        found.require(version == captured, Invariant::CapturedAnswer, || {
            format!("calls[{index}]: version of sampled token {offset} is {version}, captured was {captured}")
        });
    }
}

fn trainable(
    index: usize,
    span: &CallSpan,
    row: &RolloutRow,
    call: &Call,
    choice: &Choice,
    found: &mut Findings<'_>,
) {
    let captured = choice.aligned_logprobs().unwrap_or_default();
    for (offset, &trainable) in span_tokens(span, &row.trainable_mask).unwrap_or_default().iter().enumerate()
    {
        let has_logprob = captured.get(offset).is_some_and(Option::is_some);
        found.require(trainable == 0 || has_logprob, Invariant::CapturedTrainable, || {
            format!("calls[{index}]: sampled token {offset} is trainable, but no logprob of it was captured")
        });
        found.require(trainable == 0 || call.is_trainable(), Invariant::CapturedTrainable, || {
            let (status, flaws) = (call.status, &call.flaws);
            format!("calls[{index}]: sampled token {offset} is trainable, but its call is {status:?}, with {flaws:?}")
        });
    }
}

fn masked(index: usize, span: &CallSpan, row: &RolloutRow, role: CallRole, found: &mut Findings<'_>) {
    let mask = span_tokens(span, &row.trainable_mask).unwrap_or_default();
    for offset in
        mask.iter().enumerate().filter_map(|(offset, &trainable)| (trainable != 0).then_some(offset))
    {
        let role = role.as_str();
        found.add(Invariant::CapturedTrainable, || {
            format!("calls[{index}]: sampled token {offset} is trainable, but the trial masks calls of role {role}")
        });
    }
}

fn ids<'a>(tokens: impl IntoIterator<Item = &'a TokenId>) -> Vec<i32> {
    tokens.into_iter().map(|id| id.as_i32()).collect()
}

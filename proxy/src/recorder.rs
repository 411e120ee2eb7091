//! The record of one call while its answer passes: ids and logprobs are copied out of the raw JSON as it is seen.
//!
//! What is missing or does not fit is noted as a [`Flaw`]; nothing is made up.

mod answers;
mod flaws;
pub(crate) mod lists;
mod prompts;
mod versions;

use std::sync::Arc;

use answers::Answers;
use jiff::Timestamp;
pub(crate) use prompts::Prompts;
use rolltap_rollout::call::{Call, CallRole, CallStatus, Choice, Dialect, Flaw, Sampling};
use rolltap_rollout::ids::{CallId, TrialId};
use rolltap_rollout::token::Logprob;

use crate::common::clock;
use crate::common::redaction::Redaction;
use crate::prefix::Plan;
use crate::upstream::ServedBy;

/// What is known of a call before it is answered.
#[derive(Clone, Debug)]
pub(crate) struct CallFacts {
    pub(crate) dialect: Dialect,
    pub(crate) model: String,
    pub(crate) sampling: Sampling,
    pub(crate) has_media: bool,
    /// How many choices were asked for, of each prompt.
    pub(crate) choices: u32,
    /// How many prompts: one, but in a batch of completions.
    pub(crate) prompts: usize,
    /// Upstream is asked for ids and logprobs.
    pub(crate) asks_for_tokens: bool,
}

/// Everything about a call that is known when its trial admits it.
#[derive(Debug)]
pub(crate) struct CallStart {
    pub(crate) call_id: CallId,
    pub(crate) trial_id: TrialId,
    pub(crate) dialect: Dialect,
    pub(crate) started_at: Timestamp,
    /// The prompts of the trial's earlier calls, shared by all of its recorders.
    pub(crate) prompts: Arc<Prompts>,
    /// Removes secrets from the errors and the model name of the record.
    pub(crate) redaction: Arc<Redaction>,
}

/// The record of a call in flight.
#[derive(Debug)]
pub(crate) struct Recorder {
    call: Call,
    prompts: Arc<Prompts>,
    redaction: Arc<Redaction>,
    expected_choices: u32,
    asks_for_tokens: bool,
    /// Sampled tokens of all prompts that came without ids.
    tokens_without_ids: u64,
    upstream_error: Option<String>,
    /// The further prompts of a batch: each is a call of its own.
    others: Vec<Recorder>,
    served_by: Option<ServedBy>,
    /// The plan of the exact prefix, or `None` if no plan was made.
    plan: Option<Plan>,
    /// Tokens of a stream arrive as they are sampled, so their arrival dates the weights that sampled them.
    is_stream: bool,
    /// The messages of the choices, or `None` if no plan needs them.
    answers: Option<Answers>,
}

/// The parts of an answer's choice that are kept: JSON texts but for the logprobs, whose form is the dialect's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChoicePart<'a> {
    pub(crate) index: u32,
    pub(crate) token_ids: Option<&'a str>,
    pub(crate) logprobs: &'a [Option<Logprob>],
    /// The text itself.
    pub(crate) finish_reason: Option<&'a str>,
    pub(crate) stop_reason: Option<&'a str>,
    /// Completions with `echo`: `logprobs` has the prompt's tokens first, `token_ids` has not.
    pub(crate) begins_with_prompt: bool,
    /// Chat's `message`, or its `delta`.
    pub(crate) said: Option<&'a str>,
}

impl Recorder {
    /// Starts the record of a call that its trial has admitted.
    pub(crate) fn begin(start: CallStart) -> Self {
        // The version is set when an upstream answers: until then nothing is sampled.
        let mut call = Call::begun(start.call_id, start.trial_id, 0, start.started_at);
        call.dialect = start.dialect;
        Self::of(call, start.prompts, start.redaction)
    }

    fn of(call: Call, prompts: Arc<Prompts>, redaction: Arc<Redaction>) -> Self {
        Self {
            call,
            prompts,
            redaction,
            expected_choices: 0,
            asks_for_tokens: false,
            tokens_without_ids: 0,
            upstream_error: None,
            others: Vec::new(),
            served_by: None,
            plan: None,
            is_stream: false,
            answers: None,
        }
    }

    /// Records the request: its facts, and the role that the role rules give to the call.
    pub(crate) fn requested(&mut self, facts: CallFacts, role: CallRole) {
        self.call.role = role;
        self.call.dialect = facts.dialect;
        self.call.model = facts.model;
        self.call.sampling = facts.sampling;
        self.call.has_media = facts.has_media;
        self.expected_choices = facts.choices;
        self.asks_for_tokens = facts.asks_for_tokens;
        self.others = (1..facts.prompts).map(|_| self.of_further_prompt()).collect();
    }

    /// The record of one more prompt of the same batch, with a call id of its own.
    fn of_further_prompt(&self) -> Self {
        let call = Call { call_id: CallId::generate(), ..self.call.clone() };
        Self {
            expected_choices: self.expected_choices,
            asks_for_tokens: self.asks_for_tokens,
            ..Self::of(call, Arc::clone(&self.prompts), Arc::clone(&self.redaction))
        }
    }

    /// What was decided about the prompt.
    pub(crate) fn planned(&mut self, plan: Plan) {
        self.keeps_answers();
        self.plan = Some(plan);
    }

    /// The server refused the prompt as ids and makes it of the messages.
    pub(crate) fn ids_were_refused(&mut self) {
        self.plan.iter_mut().for_each(Plan::ids_were_refused);
    }

    /// Hands out what others need to go on from this call.
    pub(crate) fn take_plan(&mut self) -> Option<Plan> {
        let plan = self.plan.take()?;
        self.call.continuation = Some(plan.continuation.clone());
        Some(plan)
    }

    /// The record of one prompt of a batch, by its place.
    pub(crate) fn of_prompt(&mut self, place: usize) -> Option<&mut Self> {
        match place.checked_sub(1) {
            None => Some(self),
            Some(other) => self.others.get_mut(other),
        }
    }

    /// Records the head of upstream's answer. `is_stream` is true if its tokens arrive one by one.
    pub(crate) fn answered(&mut self, status: http::StatusCode, by: &ServedBy, is_stream: bool) {
        self.call.http_status = Some(status.as_u16());
        self.call.upstream = Some(by.upstream());
        self.call.policy_version = by.version_sent();
        self.served_by = Some(by.clone());
        self.is_stream = is_stream;
        self.others.iter_mut().for_each(|other| other.answered(status, by, is_stream));
    }

    /// From here on, what the choices say is kept until it is taken.
    pub(crate) fn keeps_answers(&mut self) {
        self.answers.get_or_insert_default();
    }

    /// The messages of the choices that came, in the form in which requests have them, by the choice's index; none for
    /// one that could not be read. Empty where they were not kept.
    pub(crate) fn take_answers(&mut self) -> Vec<(u32, Option<serde_json::Value>)> {
        self.answers.take().map(Answers::finish).unwrap_or_default()
    }

    /// The JSON string by which an answer names its model; every chunk of a stream does, and the first one counts.
    pub(crate) fn served_model(&mut self, name: &str) {
        if self.call.served_model.is_none() {
            self.call.served_model = serde_json::from_str(name).ok();
        }
    }

    /// vLLM's `prompt_token_ids`. It repeats them for each choice of a stream; the first time counts.
    pub(crate) fn prompt(&mut self, ids: &str) {
        if !self.call.prompt_token_ids.is_empty() {
            return;
        }
        match self.prompts.read(ids) {
            Ok(ids) => {
                self.call.prompt_token_ids = ids;
                self.note_whether_ids_were_taken();
            }
            // Nor can it be told whether they are those that were sent.
            Err(_) => self.flaw(Flaw::Unreadable),
        }
    }

    /// A server that knows nothing of prompts as ids renders the messages, which stand beside them.
    fn note_whether_ids_were_taken(&mut self) {
        let Some(sent) = self.plan.as_ref().and_then(|plan| plan.ids.as_ref()) else { return };
        if *sent == self.call.prompt_token_ids {
            self.served_by.iter().for_each(ServedBy::took_ids);
        } else {
            self.served_by.iter().for_each(ServedBy::ignored_ids);
            self.ids_were_refused();
        }
    }

    /// A choice of a whole answer, or one chunk's part of it.
    pub(crate) fn choice(&mut self, part: ChoicePart<'_>) {
        let mut is_readable = true;
        let version = self.version_of_stream();
        let of_index = |choice: &Choice| choice.index == part.index;
        let new = || Choice { index: part.index, ..Choice::default() };
        let choice = find_or_push(&mut self.call.choices, of_index, new);
        let ids_before = choice.token_ids.len();
        if let Some(ids) = part.token_ids {
            is_readable = lists::read_ids(ids, &mut choice.token_ids).is_ok();
        }
        let sampled = choice.token_ids.len() - ids_before;
        let of_prompt = if part.begins_with_prompt { part.logprobs.len().saturating_sub(sampled) } else { 0 };
        choice.logprobs.extend(part.logprobs.iter().skip(of_prompt));
        if sampled > 0 {
            versions::stamp(choice, ids_before, self.call.policy_version, version);
        }
        if let (Some(answers), Some(said)) = (&mut self.answers, part.said) {
            answers.part(part.index, said);
        }
        if let Some(reason) = part.finish_reason {
            choice.finish_reason = Some(reason.to_owned());
        }
        if let Some(reason) = part.stop_reason {
            choice.stop_reason = serde_json::from_str(reason).ok();
        }
        if self.call.first_token_at.is_none() && !choice.token_ids.is_empty() {
            self.call.first_token_at = Some(clock::now());
        }
        if !is_readable {
            self.flaw(Flaw::Unreadable);
        }
    }

    /// Parts of choices came without ids: each is one token at least, and the usage, which comes last, counts all.
    pub(crate) fn tokens_without_ids(&mut self, parts: u64, usage: Option<u64>) {
        self.tokens_without_ids = (self.tokens_without_ids + parts).max(usage.unwrap_or_default());
    }

    /// How many tokens were sampled that the record has no ids of.
    pub(crate) fn unrecorded_tokens(&self) -> u64 {
        let has_ids =
            |recorder: &Self| recorder.call.choices.iter().any(|choice| !choice.token_ids.is_empty());
        let any_has = has_ids(self) || self.others.iter().any(has_ids);
        if any_has { 0 } else { self.tokens_without_ids }
    }

    /// Upstream put an error where an answer belongs. What comes after it does not make the call complete.
    pub(crate) fn upstream_error(&mut self, error: &str) {
        self.upstream_error.get_or_insert_with(|| error.to_owned());
    }

    /// Something of the answer was not of vLLM's form.
    pub(crate) fn unreadable(&mut self) {
        self.flaw(Flaw::Unreadable);
        if let Some(answers) = &mut self.answers {
            answers.lost_a_part();
        }
    }

    /// Whether every choice that was asked for has its finish reason.
    pub(crate) fn is_whole(&self) -> bool {
        flaws::are_all_finished(&self.call.choices, self.expected_choices)
    }

    /// Every choice of every prompt has its finish reason, and upstream reported no error.
    pub(crate) fn is_all_said(&self) -> bool {
        let is_said = |recorder: &Self| {
            recorder.expected_choices > 0 && recorder.is_whole() && recorder.upstream_error.is_none()
        };
        is_said(self) && self.others.iter().all(is_said)
    }

    /// The finished records: one, but for a batch.
    pub(crate) fn finish(mut self, status: CallStatus, error: Option<String>) -> Vec<Call> {
        let mut others = std::mem::take(&mut self.others);
        if let Some(error) = &self.upstream_error {
            others.iter_mut().for_each(|other| other.upstream_error(error));
        }
        let mut finished = Vec::with_capacity(1 + others.len());
        finished.push(self.finish_one(status, error.clone()));
        finished.extend(others.into_iter().map(|other| other.finish_one(status, error.clone())));
        finished
    }

    fn finish_one(mut self, status: CallStatus, error: Option<String>) -> Call {
        let (status, error) = match self.upstream_error.take() {
            Some(error) => (CallStatus::Failed, Some(error)),
            None => (status, error),
        };
        self.call.status = status;
        let redacted = |text: String| self.redaction.redacted(&text).into_owned();
        self.call.error = error.map(redacted);
        self.call.model = redacted(std::mem::take(&mut self.call.model));
        self.call.served_model.take_if(|served| *served == self.call.model);
        self.call.ended_at = clock::now();
        self.call.choices.sort_by_key(|choice| choice.index);
        self.note_versions();
        if status == CallStatus::Complete {
            for flaw in flaws::of_complete(&self.call, self.expected_choices) {
                self.flaw(flaw);
            }
            if let Some(by) = self.served_by.as_ref().filter(|_| self.asks_for_tokens) {
                by.lacks(&self.call.flaws);
            }
        }
        self.call
    }

    /// Which weights sample what arrives now.
    fn version_of_stream(&self) -> i32 {
        let served_by = self.served_by.as_ref().filter(|_| self.is_stream);
        served_by.map_or(self.call.policy_version, ServedBy::version_now)
    }

    fn note_versions(&mut self) {
        if let Some(by) = &self.served_by {
            versions::summarize(&mut self.call, by, self.is_stream);
        }
    }

    fn flaw(&mut self, flaw: Flaw) {
        if !self.call.flaws.contains(&flaw) {
            self.call.flaws.push(flaw);
        }
    }
}

/// The item that `is` the one looked for, else a new one. Answers have few of anything, so a scan beats a map.
fn find_or_push<T>(items: &mut Vec<T>, is: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let position = items.iter().position(is).unwrap_or(items.len());
    if position == items.len() {
        items.push(new());
    }
    #[expect(clippy::indexing_slicing, reason = "the position was found or made on the lines above")]
    &mut items[position]
}

#[cfg(test)]
mod tests;

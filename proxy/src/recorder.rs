//! Builds the record of one call while its answer streams. Token ids and logprobs are copied out of the raw JSON.
//!
//! A missing or inconsistent part becomes a [`Flaw`] of the record. The recorder never fills a gap.

mod answers;
mod flaws;
pub(crate) mod lists;
mod prompts;
mod versions;

use std::borrow::Cow;
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

/// The facts of a request, known before upstream answers.
#[derive(Clone, Debug)]
pub(crate) struct CallFacts {
    pub(crate) dialect: Dialect,
    pub(crate) model: String,
    pub(crate) sampling: Sampling,
    pub(crate) has_media: bool,
    /// The number of requested choices per prompt.
    pub(crate) choices: u32,
    /// The number of prompts. Only a batch of completions has more than one.
    pub(crate) prompts: usize,
    /// Whether the request to upstream asks for ids and logprobs.
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

/// The recorded parts of an answer's choice, as JSON texts. The logprobs are parsed, because their form depends on the
/// dialect.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChoicePart<'a> {
    pub(crate) index: u32,
    pub(crate) token_ids: Option<&'a str>,
    pub(crate) logprobs: &'a [Option<Logprob>],
    /// The plain text, without quotes.
    pub(crate) finish_reason: Option<&'a str>,
    pub(crate) stop_reason: Option<&'a str>,
    /// True for completions with `echo`: `logprobs` begins with the prompt's tokens, `token_ids` does not.
    pub(crate) begins_with_prompt: bool,
    /// The `message` or `delta` of a chat answer.
    pub(crate) message: Option<&'a str>,
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

    /// Records the plan for the prompt, and starts to collect the messages that the plan needs.
    pub(crate) fn planned(&mut self, plan: Plan) {
        self.keeps_answers();
        self.plan = Some(plan);
    }

    /// Records that the server rejected the id prompt and renders the messages instead.
    pub(crate) fn ids_were_refused(&mut self) {
        self.plan.iter_mut().for_each(Plan::ids_were_refused);
    }

    /// Returns the time at which the request's head arrived.
    pub(crate) fn started_at(&self) -> Timestamp {
        self.call.started_at
    }

    /// Returns the secrets that no record contains.
    pub(crate) fn redaction(&self) -> Arc<Redaction> {
        Arc::clone(&self.redaction)
    }

    /// Removes and returns the plan, and copies its continuation into the record.
    pub(crate) fn take_plan(&mut self) -> Option<Plan> {
        let plan = self.plan.take()?;
        self.call.continuation = Some(plan.continuation.clone());
        Some(plan)
    }

    /// Returns the record of one prompt of a batch, by its index in the request.
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

    /// Collects the messages of the choices from now on, until [`Self::take_answers`].
    pub(crate) fn keeps_answers(&mut self) {
        self.answers.get_or_insert_default();
    }

    /// Removes and returns the collected messages as JSON texts, in the form of request messages, with the index of their
    /// choice. A message is `None` if it could not be read. Empty if no messages were collected.
    pub(crate) fn take_answers(&mut self) -> Vec<(u32, Option<String>)> {
        self.answers.take().map(Answers::finish).unwrap_or_default()
    }

    /// Records the model of an answer, given as a JSON string. Every chunk of a stream has it, and the first one counts.
    pub(crate) fn served_model(&mut self, name: &str) {
        if self.call.served_model.is_none() {
            self.call.served_model = serde_json::from_str(name).ok();
        }
    }

    /// Records vLLM's `prompt_token_ids`. A stream repeats them for each choice, and the first ones count.
    pub(crate) fn prompt(&mut self, ids: &str) {
        if !self.call.prompt_token_ids.is_empty() {
            return;
        }
        match self.prompts.read(ids) {
            Ok(ids) => {
                self.call.prompt_token_ids = ids;
                self.note_whether_ids_were_taken();
            }
            // Unreadable ids cannot be compared with the ids that were sent either.
            Err(_) => self.flaw(Flaw::Unreadable),
        }
    }

    /// Compares the prompt with the ids that were sent. A server without support for id prompts ignores them and renders
    /// the messages of the same request.
    fn note_whether_ids_were_taken(&mut self) {
        let Some(sent) = self.plan.as_ref().and_then(|plan| plan.ids.as_ref()) else { return };
        if *sent == self.call.prompt_token_ids {
            self.served_by.iter().for_each(ServedBy::took_ids);
        } else {
            self.served_by.iter().for_each(ServedBy::ignored_ids);
            self.ids_were_refused();
        }
    }

    /// Records a choice of a whole answer, or the part of a choice in one chunk.
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
        choice.logprobs.extend_from_slice(part.logprobs.get(of_prompt..).unwrap_or_default());
        if sampled > 0 {
            versions::stamp(choice, ids_before, self.call.policy_version, version);
        }
        if let (Some(answers), Some(message)) = (&mut self.answers, part.message) {
            answers.part(part.index, message);
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

    /// Counts parts of choices that came without ids. Each is at least one token, and the final `usage` counts all tokens.
    pub(crate) fn tokens_without_ids(&mut self, parts: u64, usage: Option<u64>) {
        self.tokens_without_ids = (self.tokens_without_ids + parts).max(usage.unwrap_or_default());
    }

    /// Returns the time at which the call was sent to the upstream that answered. `None` if none answered.
    pub(crate) fn sent_at(&self) -> Option<Timestamp> {
        self.served_by.as_ref().map(ServedBy::sent_at)
    }

    /// Whether the tokens arrive one by one.
    pub(crate) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Returns the number of sampled tokens whose ids the record lacks.
    pub(crate) fn unrecorded_tokens(&self) -> u64 {
        let has_ids =
            |recorder: &Self| recorder.call.choices.iter().any(|choice| !choice.token_ids.is_empty());
        let any_has = has_ids(self) || self.others.iter().any(has_ids);
        if any_has { 0 } else { self.tokens_without_ids }
    }

    /// Records an error that upstream sent in place of an answer. The call fails, even if the stream continues.
    pub(crate) fn upstream_error(&mut self, error: &str) {
        self.upstream_error.get_or_insert_with(|| error.to_owned());
    }

    /// Records that a part of the answer does not have vLLM's form.
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

    /// Whether every choice of every prompt has its finish reason and upstream reported no error.
    pub(crate) fn is_complete(&self) -> bool {
        let is_complete = |recorder: &Self| {
            recorder.expected_choices > 0 && recorder.is_whole() && recorder.upstream_error.is_none()
        };
        is_complete(self) && self.others.iter().all(is_complete)
    }

    /// Finishes the records: one per prompt of the request.
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
        let redacted = |text: String| {
            if let Cow::Owned(redacted) = self.redaction.redacted(&text) { redacted } else { text }
        };
        self.call.error = error.map(redacted);
        self.call.model = redacted(std::mem::take(&mut self.call.model));
        self.call.served_model.take_if(|served| *served == self.call.model);
        self.call.ended_at = clock::now();
        self.call.choices.sort_by_key(|choice| choice.index);
        release_spare_memory(&mut self.call.choices);
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

    /// Returns the policy version that samples the tokens which arrive now.
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

/// Releases the room into which the lists could still grow. A finished record lives as long as its trial is open.
fn release_spare_memory(choices: &mut Vec<Choice>) {
    for choice in &mut *choices {
        choice.token_ids.shrink_to_fit();
        choice.logprobs.shrink_to_fit();
    }
    choices.shrink_to_fit();
}

/// Returns the first item for which `is` holds, or adds a new item. The lists are short, so a scan is faster than a map.
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

//! The record of one call while its answer passes: ids and logprobs are copied out of the raw JSON as it is seen.
//!
//! What is missing or does not fit is noted as a [`Flaw`]; nothing is made up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use rolltap_rollout::call::{Call, CallRole, CallStatus, Choice, Dialect, Flaw, Sampling, VersionSpan};
use rolltap_rollout::ids::{CallId, TrialId};
use rolltap_rollout::token::{Logprob, TokenId};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::clock;
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
}

/// A call's record under way.
#[derive(Debug)]
pub(crate) struct Recorder {
    call: Call,
    expected_choices: u32,
    upstream_error: Option<String>,
    /// The further prompts of a batch: each is a call of its own.
    others: Vec<Recorder>,
    served_by: Option<ServedBy>,
    /// Tokens come as they are sampled, so that their arrival tells which weights sampled them.
    is_stream: bool,
}

/// The parts of an answer's choice that are kept, as they stand in the JSON text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChoicePart<'a> {
    pub(crate) index: u32,
    pub(crate) token_ids: Option<&'a RawValue>,
    pub(crate) logprobs: Option<&'a RawValue>,
    pub(crate) finish_reason: Option<&'a str>,
    pub(crate) stop_reason: Option<&'a RawValue>,
    /// Completions with `echo`: `logprobs` has the prompt's tokens first, `token_ids` has not.
    pub(crate) begins_with_prompt: bool,
}

impl Recorder {
    pub(crate) fn new(
        call_id: CallId,
        trial_id: TrialId,
        policy_version: i32,
        started_at: Timestamp,
    ) -> Self {
        let call = Call {
            call_id,
            trial_id,
            dialect: Dialect::ChatCompletions,
            model: String::new(),
            status: CallStatus::Cancelled,
            role: CallRole::Main,
            prompt_token_ids: Vec::new(),
            choices: Vec::new(),
            sampling: Sampling::default(),
            policy_version,
            straddles_versions: false,
            version_labels: BTreeMap::new(),
            upstream: None,
            has_media: false,
            flaws: Vec::new(),
            http_status: None,
            error: None,
            started_at,
            first_token_at: None,
            ended_at: started_at,
        };
        Self {
            call,
            expected_choices: 0,
            upstream_error: None,
            others: Vec::new(),
            served_by: None,
            is_stream: false,
        }
    }

    /// In which dialect the request came, known before it is read.
    pub(crate) fn spoken(&mut self, dialect: Dialect) {
        self.call.dialect = dialect;
    }

    /// What the request said.
    pub(crate) fn asked(&mut self, facts: CallFacts) {
        self.call.dialect = facts.dialect;
        self.call.model = facts.model;
        self.call.sampling = facts.sampling;
        self.call.has_media = facts.has_media;
        self.expected_choices = facts.choices;
        let other = |_| Self {
            call: Call { call_id: CallId::generate(), ..self.call.clone() },
            expected_choices: facts.choices,
            upstream_error: None,
            others: Vec::new(),
            served_by: None,
            is_stream: false,
        };
        self.others = (1..facts.prompts).map(other).collect();
    }

    /// The record of one prompt of a batch, by its place.
    pub(crate) fn of_prompt(&mut self, place: usize) -> Option<&mut Self> {
        match place.checked_sub(1) {
            None => Some(self),
            Some(other) => self.others.get_mut(other),
        }
    }

    /// Upstream began to answer.
    pub(crate) fn answered(&mut self, status: http::StatusCode, by: &ServedBy) {
        self.call.http_status = Some(status.as_u16());
        self.call.upstream = Some(by.upstream());
        self.call.policy_version = by.version_sent();
        self.served_by = Some(by.clone());
        self.others.iter_mut().for_each(|other| other.answered(status, by));
    }

    /// The answer comes token by token.
    pub(crate) fn streams(&mut self) {
        self.is_stream = true;
        self.others.iter_mut().for_each(Self::streams);
    }

    /// vLLM's `prompt_token_ids`. It repeats them for each choice of a stream; the first time counts.
    pub(crate) fn prompt(&mut self, ids: &RawValue) {
        if self.call.prompt_token_ids.is_empty()
            && extend(TokenIds(&mut self.call.prompt_token_ids), ids).is_err()
        {
            self.call.prompt_token_ids.clear();
            self.flaw(Flaw::Unreadable);
        }
    }

    /// A choice of a whole answer, or one chunk's part of it.
    pub(crate) fn choice(&mut self, part: ChoicePart<'_>) {
        let mut is_readable = true;
        let version = self.version_of_stream();
        let choice = choice_at(&mut self.call.choices, part.index);
        let ids_before = choice.token_ids.len();
        if let Some(ids) = part.token_ids {
            is_readable &= extend(TokenIds(&mut choice.token_ids), ids).is_ok();
        }
        if let Some(logprobs) = part.logprobs {
            let known = choice.logprobs.len();
            is_readable &= extend(Logprobs(&mut choice.logprobs), logprobs).is_ok();
            if part.begins_with_prompt {
                let sampled = choice.token_ids.len() - ids_before;
                let of_prompt = (choice.logprobs.len() - known).saturating_sub(sampled);
                choice.logprobs.drain(known..known + of_prompt);
            }
        }
        if choice.token_ids.len() > ids_before {
            stamp(choice, ids_before, self.call.policy_version, version);
        }
        if let Some(reason) = part.finish_reason {
            choice.finish_reason = Some(reason.to_owned());
        }
        if let Some(reason) = part.stop_reason {
            choice.stop_reason = serde_json::from_str(reason.get()).ok();
        }
        if self.call.first_token_at.is_none() && !choice.token_ids.is_empty() {
            self.call.first_token_at = Some(clock::now());
        }
        if !is_readable {
            self.flaw(Flaw::Unreadable);
        }
    }

    /// Upstream put an error where an answer belongs. What comes after it does not make the call complete.
    pub(crate) fn upstream_error(&mut self, error: &str) {
        self.upstream_error.get_or_insert_with(|| error.to_owned());
    }

    /// Something of the answer was not of vLLM's form.
    pub(crate) fn unreadable(&mut self) {
        self.flaw(Flaw::Unreadable);
    }

    /// Every choice asked for has its finish reason.
    pub(crate) fn is_whole(&self) -> bool {
        let finished = self.call.choices.iter().filter(|choice| choice.finish_reason.is_some()).count();
        finished >= self.expected_choices as usize
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
        self.call.error = error;
        self.call.ended_at = clock::now();
        self.call.choices.sort_by_key(|choice| choice.index);
        self.note_versions();
        if status == CallStatus::Complete {
            self.note_what_is_missing();
        }
        self.call
    }

    /// Which weights sample what arrives now.
    fn version_of_stream(&self) -> i32 {
        let served_by = self.served_by.as_ref().filter(|_| self.is_stream);
        served_by.map_or(self.call.policy_version, ServedBy::version_now)
    }

    fn note_versions(&mut self) {
        let Some(by) = &self.served_by else { return };
        let spans = self.call.choices.iter().flat_map(|choice| &choice.versions);
        let versions: BTreeSet<_> =
            spans.map(|span| span.version).chain([self.call.policy_version]).collect();
        let has_tokens = self.call.choices.iter().any(|choice| !choice.token_ids.is_empty());
        let has_changed = !self.is_stream && by.version_now() != self.call.policy_version;
        self.call.straddles_versions = versions.len() > 1 || (has_changed && has_tokens);
        self.call.version_labels = by.labels_of(versions);
    }

    fn note_what_is_missing(&mut self) {
        let choices = &self.call.choices;
        let any = |fits: fn(&Choice) -> bool| choices.iter().any(fits);
        let found = [
            (self.call.prompt_token_ids.is_empty(), Flaw::MissingPromptIds),
            (any(|choice| choice.token_ids.is_empty()), Flaw::MissingTokenIds),
            (any(|choice| choice.logprobs.is_empty()), Flaw::MissingLogprobs),
            (any(|choice| choice.logprobs.len() != choice.token_ids.len()), Flaw::LengthMismatch),
            (any(|choice| choice.logprobs.contains(&None)), Flaw::InvalidLogprob),
            (choices.len() != self.expected_choices as usize || !self.is_whole(), Flaw::MissingChoice),
        ];
        found.into_iter().filter(|(is_so, _)| *is_so).for_each(|(_, flaw)| self.flaw(flaw));
    }

    fn flaw(&mut self, flaw: Flaw) {
        if !self.call.flaws.contains(&flaw) {
            self.call.flaws.push(flaw);
        }
    }
}

/// The choice of that index; answers have few, so a scan beats a map.
fn choice_at(choices: &mut Vec<Choice>, index: u32) -> &mut Choice {
    let position = choices.iter().position(|choice| choice.index == index).unwrap_or(choices.len());
    if position == choices.len() {
        choices.push(Choice { index, ..Choice::default() });
    }
    #[expect(clippy::indexing_slicing, reason = "the position was found or made on the lines above")]
    &mut choices[position]
}

/// Notes that the tokens from `start` on are of this version, where those before are of another.
fn stamp(choice: &mut Choice, start: usize, sent: i32, version: i32) {
    let before = choice.versions.last().map_or(sent, |span| span.version);
    if version != before {
        choice.versions.push(VersionSpan { start: u32::try_from(start).unwrap_or(u32::MAX), version });
    }
}

fn extend<'de>(
    seed: impl DeserializeSeed<'de, Value = ()>,
    raw: &'de RawValue,
) -> Result<(), serde_json::Error> {
    seed.deserialize(&mut serde_json::Deserializer::from_str(raw.get()))
}

/// Appends a JSON array of token ids: no list of its own per chunk.
struct TokenIds<'v>(&'v mut Vec<TokenId>);

impl<'de> DeserializeSeed<'de> for TokenIds<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for TokenIds<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of token ids")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut ids: A) -> Result<(), A::Error> {
        while let Some(id) = ids.next_element()? {
            self.0.push(id);
        }
        Ok(())
    }
}

/// Appends the tokens' logprobs of vLLM's `logprobs` object: `content[].logprob` of chat completions, `token_logprobs` of
/// completions.
struct Logprobs<'v>(&'v mut Vec<Option<Logprob>>);

impl<'de> DeserializeSeed<'de> for Logprobs<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Logprobs<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a logprobs object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<&str>()? {
            match key {
                "content" => {
                    let entries: Option<Vec<Entry>> = map.next_value()?;
                    self.0
                        .extend(entries.unwrap_or_default().into_iter().map(|entry| logprob(entry.logprob)));
                }
                "token_logprobs" => {
                    let numbers: Option<Vec<Option<f64>>> = map.next_value()?;
                    self.0.extend(numbers.unwrap_or_default().into_iter().map(logprob));
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[derive(serde::Deserialize)]
struct Entry {
    logprob: Option<f64>,
}

/// vLLM prints a 32-bit number with the digits of a 64-bit one, so the way back is exact.
fn logprob(number: Option<f64>) -> Option<Logprob> {
    Logprob::try_from(number? as f32).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> Recorder {
        let mut recorder =
            Recorder::new(CallId::generate(), TrialId::new("t").unwrap(), 3, Timestamp::UNIX_EPOCH);
        recorder.asked(CallFacts {
            dialect: Dialect::ChatCompletions,
            model: "m".into(),
            sampling: Sampling::default(),
            has_media: false,
            choices: 1,
            prompts: 1,
        });
        recorder
    }

    fn raw(json: &str) -> Box<RawValue> {
        serde_json::from_str(json).unwrap()
    }

    fn finished(prompt: &str, ids: &str, logprobs: &str) -> Call {
        let mut recorder = recorder();
        recorder.prompt(&raw(prompt));
        let (ids, logprobs) = (raw(ids), raw(logprobs));
        recorder.choice(ChoicePart {
            token_ids: Some(&ids),
            logprobs: Some(&logprobs),
            finish_reason: Some("stop"),
            ..ChoicePart::default()
        });
        recorder.finish_one(CallStatus::Complete, None)
    }

    #[test]
    fn a_whole_answer_has_no_flaw() {
        let call = finished("[1,2]", "[3]", r#"{"content":[{"token":"x","logprob":-7.630593299865723}]}"#);
        assert_eq!(call.flaws, []);
        assert_eq!(call.choices[0].logprobs[0].map(Logprob::get), Some(-7.6305933f32));
        assert!(call.is_trainable() && call.first_token_at.is_some());
    }

    #[test]
    fn what_is_missing_is_named_and_not_trained() {
        let good = r#"{"content":[{"logprob":-1.0}]}"#;
        for (prompt, ids, logprobs, flaw) in [
            ("[]", "[3]", good, Flaw::MissingPromptIds),
            ("[-1]", "[3]", good, Flaw::Unreadable),
            ("[1]", "[]", good, Flaw::MissingTokenIds),
            ("[1]", "[3]", r#"{"content":null}"#, Flaw::MissingLogprobs),
            ("[1]", "[3,4]", good, Flaw::LengthMismatch),
            ("[1]", "[\"3\"]", good, Flaw::Unreadable),
        ] {
            let call = finished(prompt, ids, logprobs);
            assert!(call.flaws.contains(&flaw), "{flaw:?} not in {:?}", call.flaws);
            assert!(!call.is_trainable(), "{flaw:?}");
        }
    }

    #[test]
    fn a_logprob_that_is_none_keeps_its_place() {
        let call = finished("[1]", "[3,4]", r#"{"content":[{"logprob":0.5},{"logprob":-0.5}]}"#);
        assert_eq!(call.flaws, [Flaw::InvalidLogprob]);
        assert_eq!(call.choices[0].logprobs.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn a_choice_that_never_came_is_missed() {
        let mut recorder = recorder();
        recorder.expected_choices = 2;
        recorder.prompt(&raw("[1]"));
        assert!(recorder.finish_one(CallStatus::Complete, None).flaws.contains(&Flaw::MissingChoice));
    }
}

//! A call as bytes: what is small as JSON, ids as numbers, logprobs apart ([`logprobs`]), the prompt as its difference from an earlier
//! call's prompt and answer; then its conversation, if somebody looked at it.
//!
//! Each turn of an agent repeats the conversation so far; written as a difference, a trial's calls need room for what
//! is new in each. A record names the one it builds on by how many bytes it lies before it in the file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use jiff::Timestamp;
use rolltap_rollout::call::{Call, CallRole, CallStatus, Choice, Dialect, Flaw, Sampling, VersionSpan};
use rolltap_rollout::continuation::Continuation;
use rolltap_rollout::ids::{CallId, TrialId};
use rolltap_rollout::token::{Logprob, TokenId};
use rolltap_rollout::token_list::{TokenList, common_prefix};
use serde::Serialize;

use super::logprobs::{self, Planes, Taking};
use super::varint::{Numbers, NumbersMut};

/// How what is small begins where the call's name is with it.
const NAME: &str = "\"call_id\":";

/// What a call's prompt has in common with an earlier call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shared {
    /// Ids of the prompt that are those of the earlier prompt.
    of_prompt: usize,
    /// Ids that follow them and are those of an answer. Only where all of the earlier prompt is shared.
    of_answer: usize,
    /// Which answer.
    choice: usize,
}

impl Shared {
    /// Between `call` and an `earlier` one.
    pub(crate) fn between(call: &Call, earlier: &Call) -> Self {
        let prompt = &call.prompt_token_ids;
        let of_prompt = prompt.common_prefix(&earlier.prompt_token_ids);
        if of_prompt < earlier.prompt_token_ids.len() {
            return Self { of_prompt, ..Self::default() };
        }
        let with = |(choice, answer): (usize, &Choice)| {
            let next: Vec<_> = prompt.iter().skip(of_prompt).take(answer.token_ids.len()).copied().collect();
            Self { of_prompt, of_answer: common_prefix(&next, &answer.token_ids), choice }
        };
        earlier.choices.iter().enumerate().map(with).max().unwrap_or(Self { of_prompt, ..Self::default() })
    }

    /// How many ids need not be written.
    pub(crate) fn length(self) -> usize {
        self.of_prompt + self.of_answer
    }
}

/// Appends a call but for its name and its logprobs, which are put into `planes`; gives where in `out` what is small stands.
/// `earlier` says how many bytes before it lies the record of a call that its prompt shares with.
pub(crate) fn write(
    call: &Call,
    earlier: Option<(u64, Shared)>,
    out: &mut Vec<u8>,
    planes: &mut Planes,
) -> Result<Range<usize>, serde_json::Error> {
    let mut small = Vec::with_capacity(1024);
    serde_json::to_writer(&mut small, &without_lists(call))?;
    out.put_number(small.len() as u64);
    let start = out.len();
    out.extend_from_slice(&small);
    let small = start..out.len();
    let (distance, shared) = earlier.unwrap_or_default();
    for number in [distance, shared.of_prompt as u64, shared.of_answer as u64, shared.choice as u64] {
        out.put_number(number);
    }
    let new = call.prompt_token_ids.len() - shared.length();
    put_ids(call.prompt_token_ids.iter().skip(shared.length()), new, out);
    for choice in &call.choices {
        put_ids(choice.token_ids.iter(), choice.token_ids.len(), out);
        out.put_number(choice.logprobs.len() as u64);
        planes.put(&choice.logprobs);
    }
    Ok(small)
}

/// What is small in a call that was written, as it stands there.
pub(crate) fn small<'a>(body: &mut Numbers<'a>) -> Option<&'a [u8]> {
    let length = body.number()?;
    body.bytes(length)
}

/// Whether what is small begins with the call's name.
pub(crate) fn is_named(small: &[u8]) -> bool {
    small.strip_prefix(b"{").is_some_and(|rest| rest.starts_with(NAME.as_bytes()))
}

/// What of a call stands apart from all else.
pub(crate) enum Apart<'a> {
    /// In the first format: nothing.
    V1,
    /// In the second one: nothing either, but the logprobs are in another order.
    V2,
    /// The name, where it is not with what is small; the logprobs.
    V3(Option<CallId>, Taking<'a>),
}

/// Reads a call; `earlier` gives the one whose record lies so many bytes before it.
pub(crate) fn read(
    numbers: &mut Numbers<'_>,
    mut apart: Apart<'_>,
    earlier: impl FnOnce(u64) -> Option<Arc<Call>>,
) -> Result<Call, String> {
    let cut_short = || "the record of a call ends too early".to_owned();
    let mut call = read_small(small(numbers).ok_or_else(cut_short)?, &apart)?;
    let [distance, of_prompt, of_answer, choice] =
        [(); 4].map(|()| numbers.number()).map(Option::unwrap_or_default);
    if distance > 0 {
        let earlier = earlier(distance).ok_or_else(|| {
            format!("it builds on the record {distance} bytes before it, which is not there")
        })?;
        call.prompt_token_ids = shared_ids(&earlier, of_prompt, of_answer, choice)
            .ok_or("it shares more with an earlier call than that call has")?;
    }
    let new = take_ids(numbers).ok_or_else(cut_short)?;
    call.prompt_token_ids.extend_from_slice(&new);
    for choice in &mut call.choices {
        choice.token_ids = take_ids(numbers).ok_or_else(cut_short)?;
        choice.logprobs = take_logprobs(numbers, &mut apart).ok_or_else(cut_short)?;
    }
    Ok(call)
}

fn read_small(small: &[u8], apart: &Apart<'_>) -> Result<Call, String> {
    let with_name;
    let small = match (apart, small.strip_prefix(b"{")) {
        (Apart::V3(Some(name), _), Some(rest)) => {
            with_name = [format!("{{{NAME}\"{name}\",").as_bytes(), rest].concat();
            &with_name
        }
        _ => small,
    };
    serde_json::from_slice(small).map_err(|error| error.to_string())
}

fn shared_ids(earlier: &Call, of_prompt: u64, of_answer: u64, choice: u64) -> Option<TokenList> {
    let of_prompt = usize::try_from(of_prompt).ok()?;
    let mut ids = earlier.prompt_token_ids.prefix(of_prompt);
    if of_answer > 0 {
        let answer = &earlier.choices.get(usize::try_from(choice).ok()?)?.token_ids;
        ids.extend_from_slice(answer.get(..usize::try_from(of_answer).ok()?)?);
    }
    (ids.len() == of_prompt + usize::try_from(of_answer).ok()?).then_some(ids)
}

/// A call but for its lists, which stand empty in their places.
#[derive(Serialize)]
struct WithoutLists<'a> {
    /// Where the record's mark is not the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<&'a CallId>,
    trial_id: &'a TrialId,
    dialect: Dialect,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    served_model: Option<&'a str>,
    status: CallStatus,
    role: CallRole,
    #[serde(skip_serializing_if = "Option::is_none")]
    continuation: Option<&'a Continuation>,
    prompt_token_ids: [TokenId; 0],
    choices: Vec<ChoiceWithoutLists<'a>>,
    sampling: &'a Sampling,
    policy_version: i32,
    straddles_versions: bool,
    version_labels: &'a BTreeMap<i32, String>,
    upstream: Option<&'a str>,
    has_media: bool,
    flaws: &'a [Flaw],
    http_status: Option<u16>,
    error: Option<&'a str>,
    started_at: Timestamp,
    first_token_at: Option<Timestamp>,
    ended_at: Timestamp,
}

#[derive(Serialize)]
struct ChoiceWithoutLists<'a> {
    index: u32,
    token_ids: [TokenId; 0],
    logprobs: [Option<Logprob>; 0],
    finish_reason: Option<&'a str>,
    stop_reason: Option<&'a serde_json::Value>,
    versions: &'a [VersionSpan],
}

/// Every member is named, so that none is forgotten here when one is added.
fn without_lists(call: &Call) -> WithoutLists<'_> {
    let Call {
        call_id,
        trial_id,
        dialect,
        model,
        served_model,
        status,
        role,
        continuation,
        prompt_token_ids: _,
        choices,
        sampling,
        policy_version,
        straddles_versions,
        version_labels,
        upstream,
        has_media,
        flaws,
        http_status,
        error,
        started_at,
        first_token_at,
        ended_at,
    } = call;
    WithoutLists {
        call_id: Some(call_id).filter(|call_id| call_id.as_bytes().is_none()),
        trial_id,
        dialect: *dialect,
        model,
        served_model: served_model.as_deref(),
        status: *status,
        role: *role,
        continuation: continuation.as_ref(),
        prompt_token_ids: [],
        choices: choices.iter().map(choice_without_lists).collect(),
        sampling,
        policy_version: *policy_version,
        straddles_versions: *straddles_versions,
        version_labels,
        upstream: upstream.as_deref(),
        has_media: *has_media,
        flaws,
        http_status: *http_status,
        error: error.as_deref(),
        started_at: *started_at,
        first_token_at: *first_token_at,
        ended_at: *ended_at,
    }
}

fn choice_without_lists(choice: &Choice) -> ChoiceWithoutLists<'_> {
    let Choice { index, token_ids: _, logprobs: _, finish_reason, stop_reason, versions } = choice;
    ChoiceWithoutLists {
        index: *index,
        token_ids: [],
        logprobs: [],
        finish_reason: finish_reason.as_deref(),
        stop_reason: stop_reason.as_ref(),
        versions,
    }
}

fn put_ids<'a>(ids: impl Iterator<Item = &'a TokenId>, length: usize, out: &mut Vec<u8>) {
    out.put_number(length as u64);
    ids.for_each(|&id| out.put_number(u32::from(id).into()));
}

fn take_ids(numbers: &mut Numbers<'_>) -> Option<Vec<TokenId>> {
    let length = numbers.number()?;
    let id = |numbers: &mut Numbers<'_>| TokenId::try_from(u32::try_from(numbers.number()?).ok()?).ok();
    (0..length).map(|_| id(numbers)).collect()
}

fn take_logprobs(numbers: &mut Numbers<'_>, apart: &mut Apart<'_>) -> Option<Vec<Option<Logprob>>> {
    let length = numbers.number()?;
    match apart {
        Apart::V1 => Some(logprobs::of_bytes(numbers.bytes(length.checked_mul(4)?)?)),
        Apart::V2 => Some(logprobs::of_joined_planes(numbers.bytes(length.checked_mul(4)?)?)),
        Apart::V3(_, planes) => planes.take(usize::try_from(length).ok()?),
    }
}

#[cfg(test)]
mod tests;

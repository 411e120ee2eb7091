//! Encodes a call as bytes. Small members are JSON, ids are varints, and logprobs are stored apart ([`logprobs`]). The
//! prompt is a difference from an earlier call's prompt and answer. The conversation follows if the call has one.
//!
//! Each turn of an agent repeats the conversation so far. With differences, the calls of a trial need space only for
//! the new part of each turn. A record refers to an earlier record by its distance: the number of bytes from the
//! beginning of the earlier record to its own beginning.

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

/// The first member of the JSON, if the JSON contains the call's id.
const NAME: &str = "\"call_id\":";

/// The part of a call's prompt that an earlier call already has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shared {
    /// The number of leading ids that the prompt shares with the earlier prompt.
    of_prompt: usize,
    /// The number of ids after them that are the beginning of an answer. Above 0 only if the whole earlier prompt is
    /// shared.
    of_answer: usize,
    /// The index of that answer among the earlier call's choices.
    choice: usize,
}

impl Shared {
    /// Compares `call` with an `earlier` call.
    pub(crate) fn between(call: &Call, earlier: &Call) -> Self {
        let prompt = &call.prompt_token_ids;
        let of_prompt = prompt.common_prefix(&earlier.prompt_token_ids);
        // An answer can follow only where the whole earlier prompt is shared.
        if of_prompt < earlier.prompt_token_ids.len() {
            return Self { of_prompt, ..Self::default() };
        }
        let with = |(choice, answer): (usize, &Choice)| {
            let next: Vec<_> = prompt.iter().skip(of_prompt).take(answer.token_ids.len()).copied().collect();
            Self { of_prompt, of_answer: common_prefix(&next, &answer.token_ids), choice }
        };
        earlier.choices.iter().enumerate().map(with).max().unwrap_or(Self { of_prompt, ..Self::default() })
    }

    /// The number of ids that the record omits.
    pub(crate) fn length(self) -> usize {
        self.of_prompt + self.of_answer
    }
}

/// Appends a call without its logprobs, and without its id if the record's mark holds it. The logprobs are put into
/// `planes`. Returns the range of the JSON in `out`. `earlier` is the distance in bytes to the record of an earlier
/// call, and the part of the prompt that both share.
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

/// Reads the JSON of a written call, as bytes.
pub(crate) fn small<'a>(body: &mut Numbers<'a>) -> Option<&'a [u8]> {
    let length = body.number()?;
    body.bytes(length)
}

/// Whether the JSON begins with the call's id.
pub(crate) fn is_named(small: &[u8]) -> bool {
    small.strip_prefix(b"{").is_some_and(|rest| rest.starts_with(NAME.as_bytes()))
}

/// The parts of a call that are stored apart from its JSON and ids, by format.
pub(crate) enum Apart<'a> {
    /// Format 1: no part. Logprobs follow one another as floats.
    V1,
    /// Format 2: no part. Logprobs are four joined byte planes.
    V2,
    /// Format 3: the id if the JSON lacks it, and the logprobs.
    V3(Option<CallId>, Taking<'a>),
}

/// Reads a call. `earlier` returns the call whose record begins that many bytes before this one.
pub(crate) fn read(
    numbers: &mut Numbers<'_>,
    mut apart: Apart<'_>,
    earlier: impl FnOnce(u64) -> Option<Arc<Call>>,
) -> Result<Call, String> {
    let cut_short = || "the record of a call ends too early".to_owned();
    let mut call = read_small(small(numbers).ok_or_else(cut_short)?, &apart)?;
    // A missing number reads as 0. The ids below are then missing too, and the record is rejected as cut short.
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
        // The id from the record's mark becomes the first member, so that one JSON parser reads all formats.
        (Apart::V3(Some(name), _), Some(rest)) => {
            with_name = [format!("{{{NAME}\"{name}\",").as_bytes(), rest].concat();
            &with_name
        }
        _ => small,
    };
    serde_json::from_slice(small).map_err(|error| error.to_string())
}

fn shared_ids(earlier: &Call, of_prompt: u64, of_answer: u64, choice: u64) -> Option<TokenList> {
    let (of_prompt, of_answer) = (usize::try_from(of_prompt).ok()?, usize::try_from(of_answer).ok()?);
    let mut ids = earlier.prompt_token_ids.prefix(of_prompt);
    if of_answer > 0 {
        let answer = &earlier.choices.get(usize::try_from(choice).ok()?)?.token_ids;
        ids.extend_from_slice(answer.get(..of_answer)?);
    }
    // The sum of damaged numbers can overflow.
    (Some(ids.len()) == of_prompt.checked_add(of_answer)).then_some(ids)
}

/// A call for the JSON, with empty arrays in the places of its lists.
#[derive(Serialize)]
struct WithoutLists<'a> {
    /// Present only if the record's mark is a hash of the id.
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

/// Destructures every member, so that the compiler rejects a new member that is forgotten here.
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
        // A logprob has four bytes.
        Apart::V1 => Some(logprobs::of_bytes(numbers.bytes(length.checked_mul(4)?)?)),
        Apart::V2 => Some(logprobs::of_joined_planes(numbers.bytes(length.checked_mul(4)?)?)),
        Apart::V3(_, planes) => planes.take(usize::try_from(length).ok()?),
    }
}

#[cfg(test)]
mod tests;

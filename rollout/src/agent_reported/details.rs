//! Reads Harbor's rollout details: per conversation a list of prompts, of answers and of logprobs, with one entry per
//! turn.
//!
//! Harbor's own agents append to the three lists independently, so one turn without logprobs shifts the entries of all
//! later turns. Lists of different lengths are not matched for that reason.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Unreadable;
use super::turn::{RawTurn, ReportedTurn, Segment};
use crate::call::{CallRole, Flaw};

/// The keys of a trial's `result.json` (`TrialResult`), or of an agent's own result (`AgentContext`).
#[derive(Deserialize)]
struct Holder<'a> {
    #[serde(borrow)]
    agent_result: Option<Account<'a>>,
    #[serde(borrow)]
    rollout_details: Option<Vec<Detail<'a>>>,
}

#[derive(Deserialize)]
struct Account<'a> {
    #[serde(borrow)]
    rollout_details: Option<Vec<Detail<'a>>>,
}

/// Harbor's `RolloutDetail`. Each key is optional.
#[derive(Deserialize)]
struct Detail<'a> {
    #[serde(borrow)]
    prompt_token_ids: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    completion_token_ids: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    logprobs: Option<Vec<&'a RawValue>>,
}

/// Reads rollout details from a list, from an agent's result with `rollout_details`, or from a trial's result with
/// `agent_result`. The first conversation is the main agent's, the others are those of sub-agents. Missing details give
/// an empty list.
///
/// # Errors
/// The bytes are not JSON, or `rollout_details` is not in Harbor's format.
pub fn rollout_details(json: &[u8]) -> Result<Vec<Segment>, Unreadable> {
    let details: Vec<Detail<'_>> = if json.trim_ascii_start().starts_with(b"[") {
        serde_json::from_slice(json)?
    } else {
        let holder: Holder<'_> = serde_json::from_slice(json)?;
        // The details of `agent_result` take precedence: a trial's result is the outer form.
        let account = holder.agent_result.and_then(|account| account.rollout_details);
        account.or(holder.rollout_details).unwrap_or_default()
    };
    // Harbor lists the main agent's conversation first.
    let roles = std::iter::once(CallRole::Main).chain(std::iter::repeat(CallRole::SubAgent));
    Ok(details.iter().zip(roles).map(|(detail, role)| Segment { role, turns: detail.turns() }).collect())
}

impl Detail<'_> {
    fn turns(&self) -> Vec<ReportedTurn> {
        let lists = [&self.prompt_token_ids, &self.completion_token_ids, &self.logprobs];
        let [prompts, answers, logprobs] = lists.map(|list| list.as_deref().filter(|list| !list.is_empty()));
        // Without a list of answers the prompts give the number of turns, so that the missing answers become flaws.
        let count = answers.or(prompts).unwrap_or_default().len();
        let (prompts, answers, logprobs) = (Entries(prompts), Entries(answers), Entries(logprobs));
        let are_misaligned = [&prompts, &answers, &logprobs].into_iter().any(|list| !list.fit(count));
        let mut turns: Vec<ReportedTurn> = Vec::with_capacity(count);
        for index in 0..count {
            let raw = RawTurn {
                prompt: prompts.entry(index, count),
                answer: answers.entry(index, count),
                logprobs: logprobs.entry(index, count),
            };
            let flaws = if are_misaligned { vec![Flaw::LengthMismatch] } else { Vec::new() };
            if !raw.is_silent() {
                turns.push(raw.read(turns.last(), flaws));
            }
        }
        turns
    }
}

/// An optional list with one entry per turn.
struct Entries<'a>(Option<&'a [&'a RawValue]>);

impl<'a> Entries<'a> {
    fn fit(&self, turns: usize) -> bool {
        self.0.is_none_or(|list| list.len() == turns)
    }

    /// Returns the entry of a turn. `None` if the lengths differ, because the entry of that turn is then unknown.
    fn entry(&self, index: usize, turns: usize) -> Option<&'a RawValue> {
        self.0.filter(|list| list.len() == turns)?.get(index).copied()
    }
}

//! Harbor's rollout details: for each conversation a list of prompts, one of answers and one of logprobs, an entry a turn.
//!
//! Harbor's own agents append to the three lists independently of each other, so that one turn without logprobs moves
//! all later ones. Lists of different lengths are therefore not laid beside each other.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Unreadable;
use super::turn::{RawTurn, ReportedTurn, Segment};
use crate::call::{CallRole, Flaw};

/// Keys of a trial's `result.json` (`TrialResult`), or of an agent's own account (`AgentContext`).
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

/// `RolloutDetail`. Each key may be absent.
#[derive(Deserialize)]
struct Detail<'a> {
    #[serde(borrow)]
    prompt_token_ids: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    completion_token_ids: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    logprobs: Option<Vec<&'a RawValue>>,
}

/// Reads rollout details where they stand: a list of them, an account of the agent with `rollout_details`, or a trial's
/// result with `agent_result`. The first is the main agent's, the others are of sub-agents.
///
/// # Errors
/// The bytes are no JSON, or `rollout_details` is not what Harbor has there. Nothing there is an empty list.
pub fn rollout_details(json: &[u8]) -> Result<Vec<Segment>, Unreadable> {
    let details: Vec<Detail<'_>> = if json.trim_ascii_start().starts_with(b"[") {
        serde_json::from_slice(json)?
    } else {
        let holder: Holder<'_> = serde_json::from_slice(json)?;
        let account = holder.agent_result.and_then(|account| account.rollout_details);
        account.or(holder.rollout_details).unwrap_or_default()
    };
    let roles = std::iter::once(CallRole::Main).chain(std::iter::repeat(CallRole::SubAgent));
    Ok(details.iter().zip(roles).map(|(detail, role)| Segment { role, turns: detail.turns() }).collect())
}

impl Detail<'_> {
    fn turns(&self) -> Vec<ReportedTurn> {
        let lists = [&self.prompt_token_ids, &self.completion_token_ids, &self.logprobs];
        let [prompts, answers, logprobs] = lists.map(|list| list.as_deref().filter(|list| !list.is_empty()));
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

/// A list with an entry a turn, where there is one.
struct Entries<'a>(Option<&'a [&'a RawValue]>);

impl<'a> Entries<'a> {
    fn fit(&self, turns: usize) -> bool {
        self.0.is_none_or(|list| list.len() == turns)
    }

    /// None where nobody can tell which entry is that turn's.
    fn entry(&self, index: usize, turns: usize) -> Option<&'a RawValue> {
        self.0.filter(|list| list.len() == turns)?.get(index).copied()
    }
}

//! Rollout details, one JSON line per trial, as `harbor` 0.25.0 stores them in a trial's `result.json`: `trial_name`,
//! `task_name`, `agent_result.rollout_details` and `verifier_result.rewards`.
//!
//! A detail is a branch with lists that have an entry per turn. `prompt_token_ids` begins with the first token each
//! time, so a line grows with the square of the turns. The other lists are `completion_token_ids`, `logprobs`, and in
//! `extra` the turn's `call_id`, `role` and `token_version`. There is no mask, because readers train every completion.
//! For this reason only trained turns are listed, a shared turn in one branch. The other turns are part of later
//! prompts. A turn with both trained and masked tokens is rejected. A trial without trained tokens has an empty list,
//! and a trial without a reward has `verifier_result: null`.

use std::collections::BTreeMap;
use std::io::Write;
use std::iter::Copied;
use std::slice::Iter;

use serde::Serialize;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};
use crate::export::shared::float_text::{Exact, finite};
use crate::export::shared::lines::{Lines, Tally, refused};
use crate::export::shared::refusal::refuse_unfit;
use crate::export::shared::row_queries::is_trained;
use crate::export::shared::turn::{BranchTurn, turns};
use crate::row::RolloutRow;

/// Writes `rollout_details` as of `harbor` 0.25.0. The module describes the format.
#[derive(Debug)]
pub struct HarborDetailsExporter<W: Write> {
    lines: Lines<W>,
    told: Tally,
}

impl<W: Write> HarborDetailsExporter<W> {
    /// Returns an exporter. Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { lines: Lines::new(out), told: Tally::default() }
    }
}

impl<W: Write> Exporter for HarborDetailsExporter<W> {
    /// # Errors
    /// The trial has images, a call with both trained and masked tokens, or a reward that is not finite.
    fn write(&mut self, trial: Trial) -> Result<(), ExportError> {
        refuse_unfit(&trial)?;
        let Some(first) = trial.rows.first() else { return Ok(()) };
        let branches = trial.rows.iter().map(trained_turns).collect::<Result<Vec<_>, _>>()?;
        self.lines.write(&first.trial_id, &Line::new(&trial, first, &branches))?;
        self.tell(&trial, &branches);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        self.lines.finish()?;
        Ok(self.told.omissions())
    }
}

impl<W: Write> HarborDetailsExporter<W> {
    fn tell(&mut self, trial: &Trial, branches: &[Vec<BranchTurn<'_>>]) {
        for (row, trained) in trial.rows.iter().zip(branches) {
            self.told.add(
                "calls: not trained on this branch, so not among its turns",
                row.calls.len() - trained.len(),
            );
            self.told.add("rows: nothing in them is trained", usize::from(!is_trained(row)));
        }
        self.told.add("trials: their advantages", usize::from(trial.advantage.is_some()));
        self.told.add("trials: their group", usize::from(trial.group.is_some()));
    }
}

/// Returns the row's trained turns, in which every token must be trained.
fn trained_turns(row: &RolloutRow) -> Result<Vec<BranchTurn<'_>>, ExportError> {
    let mut turns = turns(row)?;
    turns.retain(|turn| turn.loss_mask().contains(&1));
    // A reader trains every completion, so a masked token in a turn would be trained.
    let in_part = turns.iter().find(|turn| turn.loss_mask().iter().any(|&mask| mask != 1));
    match in_part {
        None => Ok(turns),
        Some(turn) => Err(refused(
            row,
            format!(
                "of call {} some tokens are trained and some are not, and a rollout detail has no mask; take a format \
                 that has one",
                turn.span.call_id
            ),
        )),
    }
}

#[derive(Serialize)]
struct Line<'a> {
    trial_name: &'a str,
    task_name: &'a str,
    agent_result: AgentResult<'a>,
    verifier_result: Option<VerifierResult<'a>>,
}

#[derive(Serialize)]
struct AgentResult<'a> {
    rollout_details: Vec<Detail<'a>>,
}

#[derive(Serialize)]
struct VerifierResult<'a> {
    rewards: BTreeMap<&'a str, Number>,
}

#[derive(Serialize)]
#[serde(transparent)]
struct Number(#[serde(serialize_with = "finite")] Option<f64>);

/// One branch. Each list has an entry per turn.
#[derive(Serialize)]
struct Detail<'a> {
    prompt_token_ids: Vec<&'a [i32]>,
    completion_token_ids: Vec<&'a [i32]>,
    logprobs: Vec<Exact<Copied<Iter<'a, f32>>>>,
    extra: Extra<'a>,
}

#[derive(Serialize)]
struct Extra<'a> {
    call_id: Vec<&'a str>,
    role: Vec<&'a str>,
    token_version: Vec<&'a [i32]>,
}

impl<'a> Line<'a> {
    /// Returns the line of a trial. `first` is any of its rows.
    fn new(trial: &'a Trial, first: &'a RolloutRow, branches: &[Vec<BranchTurn<'a>>]) -> Self {
        let rewards = |reward| {
            let named = first.rewards.iter().map(|(name, &number)| (name.as_str(), number));
            // The reward of the export comes last, so it replaces a verifier's number with the same name.
            let all = named.chain([("reward", reward)]);
            VerifierResult { rewards: all.map(|(name, number)| (name, Number(Some(number)))).collect() }
        };
        let with_turns = branches.iter().filter(|turns| !turns.is_empty());
        Self {
            trial_name: &first.trial_id,
            task_name: &first.task_id,
            agent_result: AgentResult {
                rollout_details: with_turns.map(|turns| Detail::of(turns)).collect(),
            },
            verifier_result: trial.reward.map(rewards),
        }
    }
}

impl<'a> Detail<'a> {
    fn of(turns: &[BranchTurn<'a>]) -> Self {
        Self {
            prompt_token_ids: turns.iter().map(BranchTurn::prompt_ids).collect(),
            completion_token_ids: turns.iter().map(BranchTurn::answer_ids).collect(),
            logprobs: turns.iter().map(|turn| Exact(turn.logprobs().iter().copied())).collect(),
            extra: Extra {
                call_id: turns.iter().map(|turn| turn.span.call_id.as_str()).collect(),
                role: turns.iter().map(|turn| turn.span.role.as_str()).collect(),
                token_version: turns.iter().map(BranchTurn::versions).collect(),
            },
        }
    }
}

//! Prepares trials for a trainer that compares trials itself: whole groups, each trial with a reward, and only the
//! branches with trained tokens.
//!
//! Such a trainer takes a number as the reward of every trial and the group's mean as its baseline. The plan leaves out
//! a trial without a reward, or chooses a stand-in for its reward that does not change the statistics of the group. A
//! group in which nothing is trained is left out: estimators that divide by the number of its trained tokens produce
//! NaN for it.
//!
//! A branch without trained tokens costs a forward pass and can do harm. One trainer takes a trial's advantage from its
//! last branch, and finds none if that branch is masked. Such branches are omitted, except one if a trial has no other
//! branches. The tokens after the last trained token of a branch are omitted too. A trainer that puts the reward on the
//! very last token loses it if that token is masked.

use std::collections::BTreeMap;
use std::io::Write;

use super::lines::{Lines, Tally, refused};
use super::refusal::refuse_unfit;
use super::row_queries::{has_versions, is_filler, is_trained};
use super::sequence::cut_tail;
use crate::export::exporter::{ExportError, Exporter, GroupPlace, Omission, Trial};
use crate::row::RolloutRow;

/// A trial of a complete group.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedTrial {
    /// The index of the trial in the export, from 0.
    pub(crate) ordinal: usize,
    /// The rows with trained tokens, or one row if there are none.
    pub(crate) rows: Vec<RolloutRow>,
    /// The trial's reward, or the stand-in for it, which is not trained.
    pub(crate) reward: f64,
    /// Whether the trial has no reward of its own.
    pub(crate) is_stand_in: bool,
    pub(crate) advantage: Option<f64>,
    pub(crate) group: Option<GroupPlace>,
}

/// The format of a trainer that compares trials itself: how a trial becomes lines.
pub trait ComparedShape {
    /// Writes a trial. The trials of a group are consecutive.
    ///
    /// # Errors
    /// The format cannot represent the trial, or the output failed.
    fn write<W: Write>(
        &mut self,
        trial: &ComparedTrial,
        out: &mut TrialLines<'_, W>,
    ) -> Result<(), ExportError>;
}

/// The output of a trial's lines, and the counts of omissions.
#[derive(Debug)]
pub struct TrialLines<'a, W> {
    pub(crate) lines: &'a mut Lines<W>,
    pub(crate) tally: &'a mut Tally,
}

impl<W> TrialLines<'_, W> {
    /// Returns whether the trial has no reward, and counts it. It has no line in a format whose trainer compares groups
    /// of any size.
    pub(crate) fn leaves_out(&mut self, trial: &ComparedTrial) -> bool {
        self.tally
            .add("trials: they have no reward, so that they have no line", usize::from(trial.is_stand_in));
        trial.is_stand_in
    }

    /// Counts a trial's advantage, which the export computed but the trainer computes itself.
    pub(crate) fn leave_out_advantage(&mut self, trial: &ComparedTrial) {
        let asked = usize::from(trial.advantage.is_some());
        self.tally.add("trials: their advantage, which the trainer works out itself", asked);
    }

    /// Counts a trial with several named rewards, because the format has one.
    pub(crate) fn leave_out_rewards_by_name(&mut self, row: &RolloutRow) {
        self.tally.add("trials: their rewards by name", usize::from(!row.rewards.is_empty()));
    }

    /// Counts a trial with meaningful policy versions.
    pub(crate) fn leave_out_versions(&mut self, row: &RolloutRow) {
        self.tally.add("trials: the policy versions of their tokens", usize::from(has_versions(row)));
    }
}

/// Writes trials group by group in one format. It buffers the trials of incomplete groups.
#[derive(Debug)]
pub struct ComparedExporter<W, S> {
    lines: Lines<W>,
    shape: S,
    tally: Tally,
    trials: usize,
    open: BTreeMap<usize, Vec<ComparedTrial>>,
}

impl<W: Write, S: ComparedShape + Default> ComparedExporter<W, S> {
    /// Returns an exporter. Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self::with_shape(out, S::default())
    }
}

impl<W: Write, S: ComparedShape> ComparedExporter<W, S> {
    /// Returns an exporter of this shape. Nothing is written yet.
    pub fn with_shape(out: W, shape: S) -> Self {
        Self { lines: Lines::new(out), shape, tally: Tally::default(), trials: 0, open: BTreeMap::new() }
    }

    fn taken(&mut self, trial: Trial) -> Result<ComparedTrial, ExportError> {
        refuse_unfit(&trial)?;
        if trial.reward.is_none()
            && let Some(row) = trial.rows.iter().find(|row| is_trained(row))
        {
            return Err(refused(row, "it has no reward, and yet tokens that are trained"));
        }
        let branches = trial.rows.len();
        let mut rows = held(trial.rows);
        self.tally.add("branches: nothing on them is trained", branches - rows.len());
        let tails = rows.iter_mut().map(cut_tail).filter(|&had_tail| had_tail).count();
        self.tally.add("branches: tokens after the last one that is trained", tails);
        if trial.reward.is_none() {
            self.tally.add("trials: that they have no reward (masked, with a stand-in for the reward)", 1);
        }
        let ordinal = self.trials;
        self.trials += 1;
        Ok(ComparedTrial {
            ordinal,
            rows,
            reward: trial.reward.or(trial.stand_in).unwrap_or_default(),
            is_stand_in: trial.reward.is_none(),
            advantage: trial.advantage,
            group: trial.group,
        })
    }

    fn write_group(&mut self, mut group: Vec<ComparedTrial>) -> Result<(), ExportError> {
        if !group.iter().flat_map(|trial| &trial.rows).any(is_trained) {
            self.tally.add("trials: of groups in which nothing is trained", group.len());
            return Ok(());
        }
        // Trials of the input first, in their order: a format may need a real prompt of the group for the others.
        group.sort_by_key(|trial| trial.rows.iter().all(is_filler));
        let mut out = TrialLines { lines: &mut self.lines, tally: &mut self.tally };
        group.iter().try_for_each(|trial| self.shape.write(trial, &mut out))
    }
}

impl<W: Write, S: ComparedShape> Exporter for ComparedExporter<W, S> {
    fn write(&mut self, trial: Trial) -> Result<(), ExportError> {
        let trial = self.taken(trial)?;
        let Some(group) = trial.group else { return self.write_group(vec![trial]) };
        let mut held = self.open.remove(&group.ordinal).unwrap_or_default();
        held.push(trial);
        // Trainers require the trials of a group to be consecutive.
        if held.len() < group.trials {
            self.open.insert(group.ordinal, held);
            return Ok(());
        }
        self.write_group(held)
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        // A group is incomplete here only if the input has fewer of its trials than the plan counted.
        for group in std::mem::take(&mut self.open).into_values() {
            self.write_group(group)?;
        }
        self.lines.finish()?;
        Ok(self.tally.omissions())
    }
}

/// Returns the rows that wait for their group: those with trained tokens, or the first one. The texts of calls are
/// removed to save memory.
pub(crate) fn held(mut rows: Vec<RolloutRow>) -> Vec<RolloutRow> {
    if rows.iter().any(is_trained) {
        rows.retain(is_trained);
    } else {
        rows.truncate(1);
    }
    remove_texts(&mut rows);
    rows
}

/// Removes the texts of calls, which no trainer reads and which are longer than all tokens.
pub(crate) fn remove_texts(rows: &mut [RolloutRow]) {
    for call in rows.iter_mut().flat_map(|row| &mut row.calls) {
        call.messages = None;
        call.tools = None;
        call.sampling = String::new();
    }
}

#[cfg(test)]
mod tests;

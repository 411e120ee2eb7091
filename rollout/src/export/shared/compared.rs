//! Trials for a trainer that compares them itself: whole groups, each trial with a reward, and only the branches that
//! train something.
//!
//! Such a trainer takes a number as the reward of every trial and the group's mean as its baseline. A trial without a
//! reward is masked, but the number that stands in the reward's place would still move the baseline of all the others:
//! with 0.0 there, a group that solved its task every time but for one failed container learns from nothing. The mean of
//! the group's rewards leaves the baseline where it is. (Where the trainer divides by the group's standard deviation too,
//! that comes out smaller by the root of the share of trials with a reward, so that advantages come out larger.)
//!
//! A branch on which nothing is trained costs a forward pass and can do harm: one trainer takes a trial's advantage from
//! its last branch, and finds none if that is masked. Such branches are left out, all but one where a trial has no others.
//! So is what stands on a branch after its last trained token: a trainer that puts the reward on the last token of all
//! loses it where that one is masked.

use std::collections::BTreeMap;
use std::io::Write;

use super::lines::{Lines, Tally, refused};
use super::refusal::refuse_unfit;
use super::row_queries::{has_versions, is_trained};
use super::sequence::cut_tail;
use crate::export::exporter::{ExportError, Exporter, GroupPlace, Omission, Trial};
use crate::row::RolloutRow;

/// A trial of a group that is whole.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedTrial {
    /// Counts the trials of the export from 0.
    pub(crate) ordinal: usize,
    /// Those that train something; one, where none does.
    pub(crate) rows: Vec<RolloutRow>,
    /// The trial's, or what stands in its place and trains nothing.
    pub(crate) reward: f64,
    /// Whether the trial has no reward of its own.
    pub(crate) is_stand_in: bool,
    pub(crate) advantage: Option<f64>,
    pub(crate) group: Option<GroupPlace>,
}

/// What a trainer that compares trials itself reads: the shape of a trial as lines.
pub trait ComparedShape {
    /// Writes a trial. Those of a group follow each other.
    ///
    /// # Errors
    /// The format cannot hold it, or the output failed.
    fn write<W: Write>(
        &mut self,
        trial: &ComparedTrial,
        out: &mut TrialLines<'_, W>,
    ) -> Result<(), ExportError>;
}

/// Where a trial's lines go, and what of it could not be held.
#[derive(Debug)]
pub struct TrialLines<'a, W> {
    pub(crate) lines: &'a mut Lines<W>,
    pub(crate) tally: &'a mut Tally,
}

impl<W> TrialLines<'_, W> {
    /// Counts the advantage of a trial, which was asked for and which the trainer makes itself.
    pub(crate) fn leave_out_advantage(&mut self, trial: &ComparedTrial) {
        let asked = usize::from(trial.advantage.is_some());
        self.tally.add("trials: their advantage, which the trainer works out itself", asked);
    }

    /// Counts a trial whose verifier gave several numbers by name, of which the format has one.
    pub(crate) fn leave_out_rewards_by_name(&mut self, row: &RolloutRow) {
        self.tally.add("trials: their rewards by name", usize::from(!row.rewards.is_empty()));
    }

    /// Counts a trial whose policy versions say something.
    pub(crate) fn leave_out_versions(&mut self, row: &RolloutRow) {
        self.tally.add("trials: the policy versions of their tokens", usize::from(has_versions(row)));
    }
}

/// Writes trials, group by group, in a shape. It holds those of groups that are not whole yet.
#[derive(Debug)]
pub struct ComparedExporter<W, S> {
    lines: Lines<W>,
    shape: S,
    tally: Tally,
    trials: usize,
    open: BTreeMap<usize, Vec<ComparedTrial>>,
}

impl<W: Write, S: ComparedShape + Default> ComparedExporter<W, S> {
    /// Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self {
            lines: Lines::new(out),
            shape: S::default(),
            tally: Tally::default(),
            trials: 0,
            open: BTreeMap::new(),
        }
    }
}

impl<W: Write, S: ComparedShape> ComparedExporter<W, S> {
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
            self.tally
                .add("trials: that they have no reward (masked; where a number must stand it is the mean of their group)", 1);
        }
        let ordinal = self.trials;
        self.trials += 1;
        Ok(ComparedTrial {
            ordinal,
            rows,
            reward: trial.reward.unwrap_or_default(),
            is_stand_in: trial.reward.is_none(),
            advantage: trial.advantage,
            group: trial.group,
        })
    }

    fn write_group(&mut self, mut group: Vec<ComparedTrial>) -> Result<(), ExportError> {
        let rewards: Vec<f64> =
            group.iter().filter(|trial| !trial.is_stand_in).map(|trial| trial.reward).collect();
        if !rewards.is_empty() {
            let mean = rewards.iter().sum::<f64>() / rewards.len() as f64;
            group.iter_mut().filter(|trial| trial.is_stand_in).for_each(|trial| trial.reward = mean);
        }
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
        if held.len() < group.trials {
            self.open.insert(group.ordinal, held);
            return Ok(());
        }
        self.write_group(held)
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        for group in std::mem::take(&mut self.open).into_values() {
            self.write_group(group)?;
        }
        self.lines.finish()?;
        Ok(self.tally.omissions())
    }
}

/// What of a trial's rows waits for its group: those that train something, or the first one, without the texts of calls.
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
        call.sampling = String::new();
    }
}

#[cfg(test)]
mod tests;

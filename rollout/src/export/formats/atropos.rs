//! Scored groups of Atropos, one JSON line per group: the body of `POST /scored_data` as of `atroposlib` 0.4.0.
//!
//! The lists have an entry per branch. `tokens` are unshifted. `masks` repeats these, with −100 for tokens that are not
//! trained, and `inference_logprobs` is 1.0 for those. `scores` has the trial's reward. If every trial of the group has
//! an advantage, `advantages` has it per token. A post is the group: Atropos has neither groups nor versions, computes
//! advantages from the scores of one post, and makes batches of groups by their number of sequences. It never batches a
//! group whose size does not divide the largest size in its queue. The consequences are:
//!
//! - Every group has the same number of sequences. The plan fills short groups or leaves them out.
//! - A trial with several branches is rejected unless there are advantages, because its score would count once per
//!   branch. With advantages it is rejected if its group has another number of sequences than the first group.
//! - A trial without trained tokens stays in its group, with a mask of −100 and `set_advantage_to_zero` in `overrides`.
//!   If it has no reward, its score is a stand-in.
//! - A group in which nothing is trained is omitted.
//!
//! `overrides` also has the temperature, by which trainers divide the logits, if it is known and the same for the
//! branch.

mod body;

use std::io::Write;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};
use crate::export::shared::lines::{Lines, Tally, refused};
use crate::export::shared::open_groups::OpenGroups;
use crate::export::shared::refusal::refuse_unfit;
use crate::export::shared::row_queries::{has_versions, is_trained};
use body::Body;

/// Writes bodies of `POST /scored_data` as of `atroposlib` 0.4.0. The module describes the format.
#[derive(Debug)]
pub struct AtroposExporter<W: Write> {
    lines: Lines<W>,
    open: OpenGroups<Trial>,
    /// The number of sequences in each group. `None` before the first group.
    size: Option<usize>,
    told: Tally,
}

impl<W: Write> AtroposExporter<W> {
    /// Returns an exporter. Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { lines: Lines::new(out), open: OpenGroups::default(), size: None, told: Tally::default() }
    }

    fn write_group(&mut self, trials: &[Trial]) -> Result<(), ExportError> {
        let Some(first) = trials.iter().flat_map(|trial| &trial.rows).next() else { return Ok(()) };
        if !trials.iter().flat_map(|trial| &trial.rows).any(is_trained) {
            self.told.add("groups: in which nothing is trained", 1);
            return Ok(());
        }
        let body = Body::of(trials);
        // A score counts once per branch. Advantages do not depend on the number of branches.
        if !body.has_advantages() {
            refuse_forked(trials)?;
        }
        self.refuse_other_size(trials)?;
        self.lines.write(&first.trial_id, &body)?;
        trials.iter().for_each(|trial| self.tell(trial));
        Ok(())
    }

    /// Rejects a group with another number of sequences than the first group.
    fn refuse_other_size(&mut self, trials: &[Trial]) -> Result<(), ExportError> {
        let size = trials.iter().map(|trial| trial.rows.len()).sum();
        let expected = *self.size.get_or_insert(size);
        // The longest trial is the most likely cause of another number.
        let longest = trials.iter().max_by_key(|trial| trial.rows.len()).and_then(|trial| trial.rows.first());
        let Some(row) = longest.filter(|_| size != expected) else { return Ok(()) };
        let problem = format!(
            "its group has {size} sequences and the first group {expected}, and Atropos batches only groups of one size; \
             take one branch per trial (--on-fork longest), and export trials without a group_id apart from groups"
        );
        Err(refused(row, problem))
    }

    fn tell(&mut self, trial: &Trial) {
        let told = &mut self.told;
        let is_unrewarded = usize::from(trial.reward.is_none());
        told.add("trials: without a reward, scored with a stand-in and not trained", is_unrewarded);
        let further = trial.rows.len().saturating_sub(1);
        told.add(
            "rows: further branches of a trial, each a sample to a trainer that makes advantages of the scores",
            further,
        );
        for row in &trial.rows {
            told.add("rows: their policy versions", usize::from(has_versions(row)));
        }
        for row in trial.rows.iter().filter(|row| is_trained(row)) {
            told.add(
                "rows: their temperature (unknown, 0, or not one for the branch), which trainers take to be 1",
                usize::from(body::temperature(row).is_none()),
            );
        }
    }
}

/// Rejects trials with several branches, because the score of such a trial would count once per branch.
fn refuse_forked(trials: &[Trial]) -> Result<(), ExportError> {
    let second = trials.iter().find_map(|trial| trial.rows.get(1));
    second.map_or(Ok(()), |row| {
        let problem = "Atropos would count its trial's score once per branch; take one branch per trial \
                       (--on-fork longest), or let rolltap make the advantages (--advantage)";
        Err(refused(row, problem))
    })
}

impl<W: Write> Exporter for AtroposExporter<W> {
    /// # Errors
    /// The trial has images, or a trial of its group has several branches and no advantage.
    fn write(&mut self, trial: Trial) -> Result<(), ExportError> {
        refuse_unfit(&trial)?;
        let Some(place) = trial.group else { return self.write_group(&[trial]) };
        // A post is a whole group, so its trials wait for the last one.
        self.open.add(place, trial).map_or(Ok(()), |group| self.write_group(&group))
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        for group in self.open.take_incomplete() {
            self.write_group(&group)?;
        }
        self.lines.finish()?;
        Ok(self.told.omissions())
    }
}

#[cfg(test)]
mod tests;

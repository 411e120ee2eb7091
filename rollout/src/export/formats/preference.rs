//! Pairs of conversations for preference optimisation (DPO), as TRL 1.16 takes these: one line per group.
//!
//! `chosen` is of the trial of the group with the highest reward, and `rejected` of the trial with the lowest. Among
//! equal rewards, the first trial counts. `prompt` has the messages with which both conversations begin, up to an answer:
//! so `chosen` and `rejected` begin with an answer, and have everything after it. `tools` has the tools that both offered.
//! `score_chosen` and `score_rejected` are the rewards. The messages have the form that chat templates read.
//!
//! If the conversations begin with different messages, such as a screen with the name of the container, there is no
//! common prompt. [`PairRules::differing_prompts`] takes that of the chosen one: a trainer may then learn that words which
//! do not fit the prompt are worse.
//!
//! A group without a pair has no line, and the export reports the reason.

mod pair;

use std::io::Write;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};
use crate::export::shared::lines::{Lines, Tally, refused};
use crate::export::shared::open_groups::OpenGroups;
use crate::export::shared::refusal::refuse_unfit;
use crate::export::shared::row_queries::is_trained;
pub use pair::PairRules;
use pair::{Candidate, Pair};

/// Writes pairs. The module describes the format.
#[derive(Debug)]
pub struct PreferenceExporter<W: Write> {
    lines: Lines<W>,
    /// The trials of incomplete groups. `None` for a trial without a reward or a conversation.
    open: OpenGroups<Option<Candidate>>,
    rules: PairRules,
    tally: Tally,
}

impl<W: Write> PreferenceExporter<W> {
    /// Returns an exporter of pairs by these rules. Nothing is written yet.
    pub fn new(out: W, rules: PairRules) -> Self {
        Self { lines: Lines::new(out), open: OpenGroups::default(), rules, tally: Tally::default() }
    }

    /// Returns the trial as one side of a pair, or `None`, and counts the reason.
    fn candidate(&mut self, trial: &Trial) -> Result<Option<Candidate>, ExportError> {
        let [row] = &trial.rows[..] else {
            let Some(second) = trial.rows.get(1) else { return Ok(None) };
            let problem =
                "a pair has one conversation of each trial; take one branch per trial (--on-fork longest)";
            return Err(refused(second, problem));
        };
        let Some(reward) = trial.reward.filter(|_| is_trained(row)) else {
            self.tally.add("trials: they have no reward, or nothing of them is trained", 1);
            return Ok(None);
        };
        let candidate = Candidate::of(row, reward)?;
        let is_unrecorded = usize::from(candidate.is_none());
        self.tally.add("trials: their messages were not recorded", is_unrecorded);
        Ok(candidate)
    }

    fn write_group(&mut self, group: Vec<Option<Candidate>>) -> Result<(), ExportError> {
        let candidates: Vec<_> = group.into_iter().flatten().collect();
        match Pair::of(&candidates, self.rules) {
            Ok(pair) => {
                let unused = candidates.len().saturating_sub(2);
                self.tally.add("trials: neither the best nor the worst of their group", unused);
                self.tally.add(
                    "pairs: which of their messages are answers (TRL's trainer compares all after the prompt, messages \
                     of users and results of tools too)",
                    usize::from(pair.has_other_messages()),
                );
                self.tally.add(
                    "pairs: the prompt of the rejected conversation, in the place of which that of the chosen one stands",
                    usize::from(pair.has_other_prompt),
                );
                self.lines.write(pair.trial_id(), &pair)
            }
            Err(reason) => {
                self.tally.add(reason.as_str(), 1);
                Ok(())
            }
        }
    }
}

impl<W: Write> Exporter for PreferenceExporter<W> {
    /// # Errors
    /// The trial has images, several branches, messages that are no list of chat messages, or a reward that is not finite.
    fn write(&mut self, trial: Trial) -> Result<(), ExportError> {
        refuse_unfit(&trial)?;
        let Some(place) = trial.group else {
            self.tally.add("trials: they have no group, so that there is nothing to compare", 1);
            return Ok(());
        };
        let candidate = self.candidate(&trial)?;
        // A pair is of the whole group, so its trials wait for the last one.
        self.open.add(place, candidate).map_or(Ok(()), |group| self.write_group(group))
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        for group in self.open.take_incomplete() {
            self.write_group(group)?;
        }
        self.lines.finish()?;
        Ok(self.tally.omissions())
    }
}

#[cfg(test)]
mod tests;

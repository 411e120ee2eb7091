//! The second pass over an export's input: each trial's rows are checked, chosen and masked as was decided of it.

use super::mask::{longest, mask_all, mask_constrained, trained};
use super::plan::{Plan, Verdict};
use super::rules::OnFork;
use super::sampling_report::Sampled;
use crate::check::{Breach, Checker, Options};
use crate::export::exporter::Trial;
use crate::row::RolloutRow;

/// Why an export ends at a trial.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum SelectionError {
    /// Its rows are not what they should be.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Breaches(Vec<Breach>),
    /// It forked, and that was not to be.
    #[error(
        "trial {trial_id} has {branches} branches, and forked trials are to be no part of this export: --on-fork longest or all takes them"
    )]
    Forked {
        /// The trial.
        trial_id: String,
        /// How many.
        branches: usize,
    },
}

/// What was exported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Trials.
    pub trials: u64,
    /// Branches, which are rows.
    pub branches: u64,
    /// Branches of those trials that were not taken.
    pub branches_left_out: u64,
    /// Tokens, prompts included.
    pub tokens: u64,
    /// Tokens that are trained.
    pub trained: u64,
    /// Tokens that would be trained, had they been sampled freely.
    pub constrained: u64,
    /// How those that are trained were sampled.
    pub sampled: Sampled,
}

impl Plan {
    /// A trial as it is exported, of all of its rows; none where it is left out.
    ///
    /// # Errors
    /// It cannot be exported, and leaving it out would be wrong without being asked.
    pub fn take(
        &self,
        mut rows: Vec<RolloutRow>,
        tally: &mut Tally,
    ) -> Result<Option<Trial>, SelectionError> {
        let Some(verdict) = rows.first().and_then(|row| self.verdicts.get(&row.trial_id)) else {
            return Ok(None);
        };
        check(&rows)?;
        let all = rows.len();
        if !self.rules.train_constrained {
            let before = trained_of(&rows);
            rows.iter_mut().for_each(mask_constrained);
            tally.constrained += before - trained_of(&rows);
        }
        match self.rules.on_fork {
            OnFork::All => {}
            OnFork::Longest => rows = only_longest(rows),
            OnFork::Error if all > 1 => {
                let trial_id = rows.first().map(|row| row.trial_id.clone()).unwrap_or_default();
                return Err(SelectionError::Forked { trial_id, branches: all });
            }
            OnFork::Error => {}
        }
        rows.iter_mut().for_each(|row| self.lay(verdict, row));
        let left_out = all - rows.len();
        tally.trials += 1;
        tally.branches += rows.len() as u64;
        tally.branches_left_out += left_out as u64;
        tally.tokens += rows.iter().map(|row| row.token_ids.len() as u64).sum::<u64>();
        tally.trained += trained_of(&rows);
        rows.iter().for_each(|row| tally.sampled.add(row));
        let &Verdict { reward, advantage, group, .. } = verdict;
        Ok(Some(Trial { rows, reward, advantage, group, left_out }))
    }

    /// What was decided of a trial is what its rows say. The verifier's own words stay where the trial trains nothing.
    fn lay(&self, verdict: &Verdict, row: &mut RolloutRow) {
        row.advantage = verdict.advantage;
        if verdict.is_masked {
            mask_all(row);
        } else {
            row.reward = verdict.reward;
            // Who reads the rows next would take a failed trial that counts as 0 for one that has to be masked.
            row.reward_valid = true;
        }
    }
}

fn check(rows: &[RolloutRow]) -> Result<(), SelectionError> {
    let mut checker = Checker::new(Options::default());
    let mut breaches: Vec<_> = rows.iter().flat_map(|row| checker.row(row, None)).collect();
    breaches.extend(checker.finish());
    if breaches.is_empty() { Ok(()) } else { Err(SelectionError::Breaches(breaches)) }
}

/// The branch with the most trainable tokens, which trains all of them: those that it shares with branches that are not
/// exported would be trained nowhere otherwise.
fn only_longest(rows: Vec<RolloutRow>) -> Vec<RolloutRow> {
    let longest = longest(rows.iter().map(|row| trained(&row.trainable_mask)));
    let row = longest.and_then(|index| rows.into_iter().nth(index));
    row.map(|row| RolloutRow { loss_mask: row.trainable_mask.clone(), ..row }).into_iter().collect()
}

fn trained_of(rows: &[RolloutRow]) -> u64 {
    rows.iter().map(|row| trained(&row.loss_mask) as u64).sum()
}

#[cfg(test)]
mod tests;

//! The second pass over an export's input: checks, selects and masks the rows of each trial by the plan.

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
    /// The rows break invariants.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Breaches(Vec<Breach>),
    /// The trial forked, and the rules do not allow forks.
    #[error(
        "trial {trial_id} has {branches} branches, and forked trials are to be no part of this export: --on-fork longest or all takes them"
    )]
    Forked {
        /// The trial.
        trial_id: String,
        /// The number of its branches.
        branches: usize,
    },
}

/// The counts of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number of trials.
    pub trials: u64,
    /// The number of branches, which are rows.
    pub branches: u64,
    /// The number of branches of those trials that were not exported.
    pub branches_left_out: u64,
    /// The number of tokens, including prompts.
    pub tokens: u64,
    /// The number of trained tokens.
    pub trained: u64,
    /// The number of tokens that would be trained without constraints on their sampling.
    pub constrained: u64,
    /// How the trained tokens were sampled.
    pub sampled: Sampled,
    /// The number of calls of the exported branches.
    pub calls: u64,
    /// The number of those calls without messages.
    pub calls_without_messages: u64,
}

impl Plan {
    /// Returns a trial for the export, from all of its rows. `None` if the plan omits the trial.
    ///
    /// # Errors
    /// The trial cannot be exported, and omitting it without the user's request would be wrong.
    pub fn take(
        &self,
        mut rows: Vec<RolloutRow>,
        tally: &mut Tally,
    ) -> Result<Option<Trial>, SelectionError> {
        let Some(verdict) = rows.first().and_then(|row| self.verdicts.get(&row.trial_id)) else {
            return Ok(None);
        };
        // Before any mask changes, so that a breach is the input's and not the export's.
        check(&rows)?;
        let all = rows.len();
        // Before the selection: which branch is the longest depends on the masks.
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
        let calls = || rows.iter().flat_map(|row| &row.calls);
        tally.calls += calls().count() as u64;
        tally.calls_without_messages += calls().filter(|call| call.messages.is_none()).count() as u64;
        let &Verdict { reward, stand_in, advantage, group, .. } = verdict;
        Ok(Some(Trial { rows, reward, stand_in, advantage, group, left_out }))
    }

    /// Applies the verdict to a row. The verifier's own reward remains if the trial is not trained.
    fn lay(&self, verdict: &Verdict, row: &mut RolloutRow) {
        row.advantage = verdict.advantage;
        if verdict.is_masked {
            mask_all(row);
        } else {
            row.reward = verdict.reward;
            // Otherwise the next reader would mask a failed trial that counts as 0.
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

/// Returns the branch with the most trainable tokens, and trains all of these. The tokens that it shares with branches
/// that are not exported would otherwise not be trained anywhere.
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

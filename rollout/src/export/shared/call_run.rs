//! The stretches of a branch that a trainer without a mask per token can train: trained tokens of one call.
//!
//! Such a trainer takes a prompt and a completion, and trains the whole completion. A call with a token in the middle
//! that is not trained (a token without a logprob) therefore gives two runs.

use std::ops::Range;

use super::policy_number::PolicyNumbers;
use super::runs::trained_runs;
use crate::row::{CallSpan, RolloutRow};

/// Consecutive trained tokens of one call.
#[derive(Clone, Debug)]
pub(crate) struct CallRun<'a> {
    pub(crate) row: &'a RolloutRow,
    /// The indices of the tokens in the row.
    pub(crate) tokens: Range<usize>,
    /// The call that sampled the tokens. `None` if no call of the row covers them.
    pub(crate) call: Option<&'a CallSpan>,
}

impl<'a> CallRun<'a> {
    /// Returns all tokens of the branch before the run.
    pub(crate) fn prompt_ids(&self) -> &'a [i32] {
        self.row.token_ids.get(..self.tokens.start).unwrap_or_default()
    }

    /// Returns the tokens of the branch up to the end of the run.
    pub(crate) fn all_ids(&self) -> &'a [i32] {
        self.row.token_ids.get(..self.tokens.end).unwrap_or_default()
    }

    /// Returns the trained tokens.
    pub(crate) fn ids(&self) -> &'a [i32] {
        self.row.token_ids.get(self.tokens.clone()).unwrap_or_default()
    }

    /// Returns the logprobs of the trained tokens, in nats.
    pub(crate) fn logprobs(&self) -> &'a [f32] {
        self.row.logprobs.get(self.tokens.clone()).unwrap_or_default()
    }

    /// Returns the lowest number of the policy versions of the trained tokens.
    pub(crate) fn oldest_version(&self, numbers: PolicyNumbers) -> i64 {
        numbers.oldest(self.row, self.tokens.clone())
    }

    /// Returns the name of the call, or an empty name.
    pub(crate) fn call_id(&self) -> &'a str {
        self.call.map_or("", |call| &call.call_id)
    }

    /// Returns vLLM's finish reason of the call. `None` if it is unknown, or if the run ends before the call.
    pub(crate) fn finish_reason(&self) -> Option<&'a str> {
        let call = self.call.filter(|call| usize::try_from(call.end) == Ok(self.tokens.end))?;
        call.finish_reason.as_deref()
    }
}

/// Returns the runs of a row in order. They cover each trained token once.
pub(crate) fn call_runs(row: &RolloutRow) -> Vec<CallRun<'_>> {
    let mut runs = Vec::new();
    for stretch in trained_runs(&row.loss_mask) {
        let mut start = stretch.start;
        // Two calls are adjacent if the prompt of the second adds nothing to the answer of the first.
        let starts = row.calls.iter().filter_map(|call| usize::try_from(call.start).ok());
        for end in starts.filter(|start| stretch.start < *start && *start < stretch.end) {
            // A call without sampled tokens starts where the next call starts.
            if start < end {
                runs.push(run(row, start..end));
                start = end;
            }
        }
        runs.push(run(row, start..stretch.end));
    }
    runs
}

fn run(row: &RolloutRow, tokens: Range<usize>) -> CallRun<'_> {
    let holds = |call: &&CallSpan| {
        let span = usize::try_from(call.start).ok().zip(usize::try_from(call.end).ok());
        span.is_some_and(|(start, end)| start <= tokens.start && tokens.end <= end)
    };
    CallRun { row, call: row.calls.iter().find(holds), tokens }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::export::testing::any_trial::any_group;
    use crate::export::testing::fixture::{straight, trial};
    use crate::forest::tests::call;

    #[test]
    fn a_masked_token_splits_a_call() {
        let mut row = straight().rows.remove(0);
        row.loss_mask = vec![0, 0, 1, 0, 0, 1];
        let runs = call_runs(&row);
        let told: Vec<_> = runs.iter().map(|run| (run.prompt_ids().len(), run.ids().to_vec())).collect();
        assert_eq!(told, [(2, vec![3]), (5, vec![6])]);
        assert_eq!(runs[1].logprobs(), [-6.0]);
    }

    #[test]
    fn adjacent_calls_are_runs_of_their_own() {
        let trial = trial("t", 0, 1.0, 0.5, &[call(0, &[1, 2], &[&[3, 4]]), call(1, &[1, 2, 3, 4], &[&[5]])]);
        let runs = call_runs(&trial.rows[0]);
        let told: Vec<_> = runs.iter().map(|run| (run.tokens.clone(), run.call_id())).collect();
        let calls = &trial.rows[0].calls;
        assert_eq!(told, [(2..4, &*calls[0].call_id), (4..5, &*calls[1].call_id)]);
    }

    #[test]
    fn only_the_end_of_a_call_has_its_finish_reason() {
        let mut row = straight().rows.remove(0);
        row.calls[1].finish_reason = Some("length".into());
        assert_eq!(call_runs(&row)[1].finish_reason(), Some("length"));
        row.loss_mask[5] = 0;
        assert_eq!(call_runs(&row)[1].finish_reason(), None);
    }

    proptest! {
        #[test]
        fn runs_cover_the_mask_and_lie_in_one_call(group in any_group()) {
            for row in group.iter().flat_map(|trial| &trial.rows) {
                let mut mask = vec![0; row.token_ids.len()];
                for run in call_runs(row) {
                    prop_assert!(run.call.is_some() && !run.tokens.is_empty());
                    for covered in &mut mask[run.tokens] {
                        *covered += 1;
                    }
                }
                prop_assert_eq!(&mask, &row.loss_mask);
            }
        }
    }
}

//! Runs of tokens that have everything in common but id and logprob, so that a page writes the common part once.

use std::ops::Range;

use rolltap_rollout::row::{CallSpan, RolloutRow};

/// Consecutive tokens of a branch with equal masks, version and call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The indices of the tokens in the branch.
    pub(crate) tokens: Range<usize>,
    /// Whether the policy sampled the tokens in this trial.
    pub(crate) is_sampled: bool,
    /// Whether the tokens may be trained.
    pub(crate) is_trainable: bool,
    /// Whether the tokens are trained on this branch.
    pub(crate) has_loss: bool,
    /// The policy version, or −1 if the tokens were not sampled.
    pub(crate) version: i32,
    /// The index of the call that sampled the tokens, or whose prompt has them, in the calls of the branch. `None`
    /// behind the last call.
    pub(crate) call: Option<usize>,
}

/// Returns the indices of these tokens, each with the call that covers it and the index of the call in the branch. A call
/// covers its answer and the prompt tokens before it that no earlier call has.
pub(crate) fn tokens_with_calls(
    row: &RolloutRow,
    tokens: Range<usize>,
) -> impl Iterator<Item = (usize, Option<(usize, &CallSpan)>)> {
    let mut calls = row.calls.iter().enumerate().peekable();
    (tokens.start..tokens.end.min(row.token_ids.len())).map(move |at| {
        while calls.next_if(|(_, span)| usize::try_from(span.end).unwrap_or_default() <= at).is_some() {}
        (at, calls.peek().copied())
    })
}

/// Whether the mask has a 1 for the token.
pub(crate) fn is_set(mask: &[u8], at: usize) -> bool {
    mask.get(at) == Some(&1)
}

/// Returns the runs of these tokens of a branch. Runs end at the bounds of `tokens`.
pub(crate) fn runs(row: &RolloutRow, tokens: Range<usize>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, call) in tokens_with_calls(row, tokens) {
        let run = Run {
            tokens: at..at + 1,
            is_sampled: is_set(&row.sampled_mask, at),
            is_trainable: is_set(&row.trainable_mask, at),
            has_loss: is_set(&row.loss_mask, at),
            version: row.token_version.get(at).copied().unwrap_or(-1),
            call: call.map(|(index, _)| index),
        };
        match runs.last_mut() {
            Some(last) if last.is_like(&run) => last.tokens.end = at + 1,
            _ => runs.push(run),
        }
    }
    runs
}

impl Run {
    fn is_like(&self, other: &Self) -> bool {
        let common = |run: &Self| (run.is_sampled, run.is_trainable, run.has_loss, run.version, run.call);
        common(self) == common(other)
    }
}

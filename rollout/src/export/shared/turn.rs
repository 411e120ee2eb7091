//! Splits a branch at its calls: the new context before each call, and its answer.

use std::ops::Range;

use super::lines::refused;
use crate::export::exporter::ExportError;
use crate::row::{CallSpan, RolloutRow};

/// One call on a branch.
#[derive(Clone, Debug)]
pub(crate) struct BranchTurn<'a> {
    pub(crate) span: &'a CallSpan,
    /// The tokens from the end of the previous answer, or the start of the branch, to this answer.
    pub(crate) context: Range<usize>,
    /// The tokens of the answer.
    pub(crate) answer: Range<usize>,
    row: &'a RolloutRow,
}

impl<'a> BranchTurn<'a> {
    /// Returns the whole prompt of the call.
    pub(crate) fn prompt_ids(&self) -> &'a [i32] {
        self.row.token_ids.get(..self.answer.start).unwrap_or_default()
    }

    /// Returns the prompt's tokens after the previous turns.
    pub(crate) fn context_ids(&self) -> &'a [i32] {
        self.row.token_ids.get(self.context.clone()).unwrap_or_default()
    }

    pub(crate) fn answer_ids(&self) -> &'a [i32] {
        self.row.token_ids.get(self.answer.clone()).unwrap_or_default()
    }

    /// Returns the logprobs of the answer's tokens.
    pub(crate) fn logprobs(&self) -> &'a [f32] {
        self.row.logprobs.get(self.answer.clone()).unwrap_or_default()
    }

    /// Returns the loss mask of the answer's tokens.
    pub(crate) fn loss_mask(&self) -> &'a [u8] {
        self.row.loss_mask.get(self.answer.clone()).unwrap_or_default()
    }

    /// Returns the trainable mask of the answer's tokens.
    pub(crate) fn trainable_mask(&self) -> &'a [u8] {
        self.row.trainable_mask.get(self.answer.clone()).unwrap_or_default()
    }

    /// Returns the policy versions of the answer's tokens.
    pub(crate) fn versions(&self) -> &'a [i32] {
        self.row.token_version.get(self.answer.clone()).unwrap_or_default()
    }
}

/// Returns the row's turns in order.
///
/// # Errors
/// The row's spans overlap or exceed its tokens.
pub(crate) fn turns(row: &RolloutRow) -> Result<Vec<BranchTurn<'_>>, ExportError> {
    let mut end_before = 0;
    // The checks of rows run before an export, but a fixture or a later format may skip them.
    let turn = |(index, span)| {
        let answer = answer(span).filter(|answer| {
            end_before <= answer.start && answer.start <= answer.end && answer.end <= row.token_ids.len()
        });
        let answer = answer.ok_or_else(|| {
            let (tokens, CallSpan { start, end, .. }) = (row.token_ids.len(), span);
            refused(
                row,
                format!("calls[{index}] is {start}..{end}, after {end_before} and of {tokens} tokens"),
            )
        })?;
        let context = end_before..answer.start;
        end_before = answer.end;
        Ok(BranchTurn { span, context, answer, row })
    };
    row.calls.iter().enumerate().map(turn).collect()
}

fn answer(span: &CallSpan) -> Option<Range<usize>> {
    Some(usize::try_from(span.start).ok()?..usize::try_from(span.end).ok()?)
}

//! A branch cut at its calls: what the conversation grew by before each, and what was answered.

use std::ops::Range;

use super::lines::refused;
use crate::export::exporter::ExportError;
use crate::row::{CallSpan, RolloutRow};

/// One call on a branch.
#[derive(Clone, Debug)]
pub(crate) struct BranchTurn<'a> {
    pub(crate) span: &'a CallSpan,
    /// From the end of the answer before, or the branch's start, to this answer.
    pub(crate) context: Range<usize>,
    /// The answer's tokens.
    pub(crate) answer: Range<usize>,
    row: &'a RolloutRow,
}

impl<'a> BranchTurn<'a> {
    /// All that the call was asked with.
    pub(crate) fn prompt_ids(&self) -> &'a [i32] {
        self.row.token_ids.get(..self.answer.start).unwrap_or_default()
    }

    /// What its prompt has beyond the turns before.
    pub(crate) fn context_ids(&self) -> &'a [i32] {
        self.row.token_ids.get(self.context.clone()).unwrap_or_default()
    }

    pub(crate) fn answer_ids(&self) -> &'a [i32] {
        self.row.token_ids.get(self.answer.clone()).unwrap_or_default()
    }

    /// Of the answer's tokens.
    pub(crate) fn logprobs(&self) -> &'a [f32] {
        self.row.logprobs.get(self.answer.clone()).unwrap_or_default()
    }

    /// Of the answer's tokens.
    pub(crate) fn loss_mask(&self) -> &'a [u8] {
        self.row.loss_mask.get(self.answer.clone()).unwrap_or_default()
    }

    /// Of the answer's tokens.
    pub(crate) fn trainable_mask(&self) -> &'a [u8] {
        self.row.trainable_mask.get(self.answer.clone()).unwrap_or_default()
    }

    /// Of the answer's tokens.
    pub(crate) fn versions(&self) -> &'a [i32] {
        self.row.token_version.get(self.answer.clone()).unwrap_or_default()
    }
}

/// The row's turns in order.
///
/// # Errors
/// Its spans overlap or go beyond its tokens.
pub(crate) fn turns(row: &RolloutRow) -> Result<Vec<BranchTurn<'_>>, ExportError> {
    let mut end_before = 0;
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

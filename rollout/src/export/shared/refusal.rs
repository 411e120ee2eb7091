//! Reasons for which several formats reject a trial.

use super::lines::{refuse_numbers, refused};
use super::row_queries::is_trained;
use crate::export::exporter::{ExportError, Trial};

/// Rejects a trial that breaks an assumption of formats that no trainer checks. Numbers must be finite, lists must have
/// equal lengths, and logprobs must be valid. A row with trained tokens must not contain images: their ids are
/// placeholders, and a trainer without the images would compute other logprobs than those sampled.
///
/// # Errors
/// One of these does not hold.
pub(crate) fn refuse_unfit(trial: &Trial) -> Result<(), ExportError> {
    refuse_numbers(trial)?;
    trial.rows.iter().try_for_each(|row| {
        let tokens = row.token_ids.len();
        let lengths =
            [row.loss_mask.len(), row.trainable_mask.len(), row.token_version.len(), row.logprobs.len()];
        if lengths.iter().any(|&length| length != tokens) {
            return Err(refused(row, format!("its lists per token have {tokens} and {lengths:?} values")));
        }
        if let Some((index, logprob)) =
            row.logprobs.iter().enumerate().find(|(_, logprob)| !is_logprob(**logprob))
        {
            return Err(refused(row, format!("logprobs[{index}] is {logprob}")));
        }
        if row.has_media && is_trained(row) {
            let problem =
                "it held images, audio or video, which a rollout does not carry; leave the trial out";
            return Err(refused(row, problem));
        }
        Ok(())
    })
}

fn is_logprob(value: f32) -> bool {
    value.is_finite() && value <= 0.0
}

/// Returns the advantage of a trial, for a format without a reward from which a trainer could compute it. `None` if
/// nothing of the trial is trained, because no advantage is needed then.
///
/// # Errors
/// Tokens are trained and there is no advantage.
pub(crate) fn advantage(trial: &Trial) -> Result<Option<f64>, ExportError> {
    match (trial.advantage, trial.rows.iter().find(|row| is_trained(row))) {
        (Some(advantage), _) => Ok(Some(advantage)),
        (None, None) => Ok(None),
        (None, Some(row)) => Err(refused(
            row,
            "it has no advantage, and the format no reward to make one of; choose one with --advantage",
        )),
    }
}

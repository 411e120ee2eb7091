//! Reasons to refuse a trial that several formats share.

use super::lines::{refuse_numbers, refused};
use super::row_queries::is_trained;
use crate::export::exporter::{ExportError, Trial};

/// What formats rely on, and no trainer looks for: numbers, lists of one length, logprobs that are logprobs, and no
/// images where something is trained. Those stand in the ids as placeholders; a trainer without the images would
/// compute other logprobs than were sampled.
///
/// # Errors
/// Something of that does not hold.
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

/// The advantage of a trial, for a format that has no reward for the trainer to make one of. None where nothing of the
/// trial is trained, so that none is needed.
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

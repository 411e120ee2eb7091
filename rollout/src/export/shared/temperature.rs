//! The number by which a trainer divides the logits to reproduce the recorded logprobs.

use super::lines::refused;
use super::turn::BranchTurn;
use crate::export::exporter::ExportError;
use crate::row::RolloutRow;

/// Returns the divisor of a turn's logits. vLLM's `raw_logprobs` are those of the undivided logits, at any temperature.
/// All other modes divide first.
///
/// # Errors
/// The temperature is unknown and none is `assumed`, or it is not a divisor: at 0 vLLM takes the token with
/// the largest logit.
pub(crate) fn divisor(
    row: &RolloutRow,
    turn: &BranchTurn<'_>,
    assumed: Option<f64>,
) -> Result<f64, ExportError> {
    if row.logprobs_mode == "raw_logprobs" {
        return Ok(1.0);
    }
    let call_id = &turn.span.call_id;
    match turn.span.temperature.or(assumed) {
        Some(temperature) if temperature.is_finite() && temperature > 0.0 => Ok(temperature),
        Some(temperature) => Err(refused(
            row,
            format!("call {call_id} was sampled at temperature {temperature}, which divides nothing"),
        )),
        None => Err(refused(
            row,
            format!(
                "nobody recorded the temperature that call {call_id} was sampled at, and its logprobs are of logits \
                 divided by it; let the proxy know it (--generation-defaults), or the trial's requests say it"
            ),
        )),
    }
}

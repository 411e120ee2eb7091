//! The section of a branch about its recomputed logprobs.

use maud::{Markup, html};
use rolltap_rollout::row::RolloutRow;

use super::format::{UNKNOWN, count};
use super::link::Links;
use crate::collection::{Job, TrialContent};
use crate::figures::recompute::{Difference, Recomputed};

/// Returns the mark of a branch in the list of a trial: nothing if the differences are within the bounds of the check.
pub(crate) fn mark(trial: &TrialContent, row: &RolloutRow) -> Markup {
    let is_beyond = Recomputed::of(trial, row).is_some_and(|recomputed| recomputed.is_beyond());
    html! { @if is_beyond { ", " span.failure { "recomputed logprobs differ" } } }
}

/// Returns the numbers of the comparison. `index` is the place of the branch in the trial.
pub(crate) fn section(
    links: &Links,
    job: &Job,
    trial: &TrialContent,
    index: usize,
    recomputed: &Recomputed<'_>,
) -> Markup {
    let line = recomputed.line;
    html! {
        h2 { "Recompute" }
        p.facts {
            "Captured logprobs against those of model " (line.model) ", weights "
            (line.weights.as_deref().unwrap_or("without a name")) ", for tokens of policy version "
            (line.policy_versions.join(", ")) "; bounds " (line.token_bound) " per token and " (line.mean_bound)
            " on average, in nats."
        }
        @if let Some(message) = &line.refused { p.note { "The server refused this branch: " (message) } }
        @if recomputed.foreign > 0 {
            p.note { (count(recomputed.foreign as u64)) " tokens of the report have another logprob here: the report is of \
                another recording." }
        }
        @if line.refused.is_none() {
            dl.numbers {
                div { dt { "Tokens compared" } dd { (count(recomputed.tokens.len() as u64)) } }
                div { dt { "Mean difference" } dd { (nats(recomputed.mean())) } }
                @if let Some((at, difference)) = recomputed.largest() {
                    div { dt { "Largest difference" } dd {
                        (nats(difference.size())) " at "
                        a href=(links.token(job.name(), &trial.entry.id, index, at)) { "token " (count(at as u64)) }
                    } }
                }
                div { dt { "Bounds" } dd {
                    @if recomputed.is_beyond() { span.failure { "exceeded" } } @else { "held" }
                } }
            }
        }
    }
}

/// Returns the explanation of the colours.
pub(crate) fn legend() -> Markup {
    html! {
        span.of-difference { "Difference in nats: "
            @for (class, words) in Difference::classes() { span class=(format!("swatch l{class}")) { (words) } " " }
        }
    }
}

/// Returns a difference with three digits, whatever its size.
fn nats(difference: f64) -> String {
    match difference {
        0.0 => "0".to_owned(),
        finite if finite.is_finite() => format!("{finite:.2e}"),
        _ => UNKNOWN.to_owned(),
    }
}

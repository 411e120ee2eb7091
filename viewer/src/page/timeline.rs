//! The timeline of a trial: its calls as bars.

use jiff::Timestamp;
use maud::{Markup, html};
use rolltap_rollout::call::{Call, CallStatus};

use super::format::{count, duration};
use crate::collection::TrialContent;

/// The width of the timeline in pixels.
const WIDTH: f64 = 900.0;
const LINE: usize = 14;
/// The maximum number of calls on a page.
pub(super) const CALLS: usize = 400;

/// Returns the calls as bars over time: the wait for the first token, and the answer.
pub(super) fn timeline(trial: &TrialContent) -> Markup {
    let calls: Vec<&Call> = trial.calls.iter().map(|(call, _)| call.as_ref()).take(CALLS).collect();
    let begin = calls.iter().map(|call| call.started_at).min().unwrap_or_default();
    let end = calls.iter().map(|call| call.ended_at).max().unwrap_or_default();
    let whole = end.duration_since(begin).as_secs_f64().max(1e-6);
    let at = |time: Timestamp| (time.duration_since(begin).as_secs_f64() / whole * WIDTH).round();
    let height = calls.len() * LINE;
    html! {
        h2 { "Timeline" }
        p.facts { (count(calls.len() as u64)) " calls in " (duration(begin, end)) ": the light part of a bar waits for the first token" }
        div.scrolls tabindex="0" role="img" aria-label="Timeline of the calls; the table below has the same data" {
            svg.timeline width=(WIDTH) height=(height) viewBox=(format!("0 0 {WIDTH} {height}")) {
                @for (line, call) in calls.iter().enumerate() {
                    @let first = call.first_token_at.unwrap_or(call.ended_at);
                    rect.waits x=(at(call.started_at)) y=(line * LINE + 2) height=(LINE - 4)
                        width=((at(first) - at(call.started_at)).max(1.0)) {}
                    rect class=(class(call)) x=(at(first)) y=(line * LINE + 2) height=(LINE - 4)
                        width=((at(call.ended_at) - at(first)).max(1.0)) { title { (call.call_id) ": " (call.status.as_str()) } }
                }
            }
        }
    }
}

fn class(call: &Call) -> &'static str {
    match call.status {
        CallStatus::Complete => "complete",
        CallStatus::Failed => "failed",
        CallStatus::Cancelled | CallStatus::Interrupted => "cut",
    }
}

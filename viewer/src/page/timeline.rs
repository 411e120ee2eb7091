//! The timeline of a trial: its calls as bars, and the changes of the policy version as lines.

use jiff::Timestamp;
use maud::{Markup, html};
use rolltap_proxy::store::PolicyChange;
use rolltap_rollout::call::{Call, CallStatus};

use super::format::{count, duration};
use crate::figures::timeline::Bar;

/// The width of the bars, and of the margin on either side, in pixels.
const WIDTH: f64 = 900.0;
const MARGIN: f64 = 16.0;
/// The height of the line of a call, and of the line with the names of versions.
const LINE: usize = 14;
/// The maximum number of calls on a page.
pub(super) const CALLS: usize = 400;

/// The times on the axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    begin: Timestamp,
    end: Timestamp,
}

impl Axis {
    fn of(bars: &[Bar<'_>]) -> Self {
        let begin = bars.iter().map(|bar| bar.call.started_at).min().unwrap_or_default();
        let end = bars.iter().map(|bar| bar.call.ended_at).max().unwrap_or_default();
        Self { begin, end }
    }

    /// Returns the position of a time in pixels.
    fn at(self, time: Timestamp) -> f64 {
        let whole = self.end.duration_since(self.begin).as_secs_f64().max(1e-6);
        (time.duration_since(self.begin).as_secs_f64() / whole * WIDTH).round() + MARGIN
    }
}

/// Returns the calls as bars over time: the wait for the first token, and the answer.
pub(super) fn timeline(bars: &[Bar<'_>], changes: &[PolicyChange]) -> Markup {
    let axis = Axis::of(bars);
    let changes: Vec<_> =
        changes.iter().filter(|change| (axis.begin..=axis.end).contains(&change.at)).collect();
    let top = if changes.is_empty() { 0 } else { LINE };
    let (width, height) = (WIDTH + 2.0 * MARGIN, top + bars.len() * LINE);
    html! {
        h2 { "Timeline" }
        p.facts { (count(bars.len() as u64)) " calls in " (duration(axis.begin, axis.end)) ". " (legend(bars, !changes.is_empty())) }
        div.scrolls tabindex="0" role="img" aria-label="Timeline of the calls; the table of calls has the same data" {
            svg.timeline width=(width) height=(height) viewBox=(format!("0 0 {width} {height}")) {
                @for change in changes {
                    @let x = axis.at(change.at);
                    line.version x1=(x) x2=(x) y1="0" y2=(height) {}
                    text x=(x + 3.0) y=(LINE - 3) { "version " (change.version) title { (change.label) } }
                }
                @for (line, bar) in bars.iter().enumerate() { (drawn(axis, bar, top + line * LINE)) }
            }
        }
    }
}

/// Returns the meaning of the marks that the timeline has.
fn legend(bars: &[Bar<'_>], has_changes: bool) -> Markup {
    let has = |mark: char| bars.iter().any(|bar| ending(bar.call.status) == Some(mark));
    html! {
        "The light part of a bar is the wait for the first token, and includes pauses of the trainer."
        @if bars.iter().any(|bar| bar.repeats.is_some()) { " ↻ repeats the request of an earlier call." }
        @if has('✕') { " ✕ is cancelled or interrupted." }
        @if has('!') { " ! has failed." }
        @if has_changes { " A vertical line is a change of the policy version." }
    }
}

/// Returns the bar of a call in a line that begins at `y`.
fn drawn(axis: Axis, bar: &Bar<'_>, y: usize) -> Markup {
    let call = bar.call;
    let first = call.first_token_at.unwrap_or(call.ended_at);
    let (start, first, end) = (axis.at(call.started_at), axis.at(first), axis.at(call.ended_at));
    html! {
        @if bar.repeats.is_some() { text x=(start - 2.0) y=(y + LINE - 3) text-anchor="end" { "↻" } }
        rect.waits x=(start) y=(y + 2) height=(LINE - 4) width=((first - start).max(1.0)) {}
        rect class=(class(call)) x=(first) y=(y + 2) height=(LINE - 4) width=((end - first).max(1.0)) {
            title { (call.call_id) ": " (call.status.as_str()) }
        }
        @if let Some(mark) = ending(call.status) { text x=(end + 3.0) y=(y + LINE - 3) { (mark) } }
    }
}

fn class(call: &Call) -> &'static str {
    match call.status {
        CallStatus::Complete => "complete",
        CallStatus::Failed => "failed",
        CallStatus::Cancelled | CallStatus::Interrupted => "cut",
    }
}

/// Returns the mark behind the bar of a call without a whole answer.
fn ending(status: CallStatus) -> Option<char> {
    match status {
        CallStatus::Complete => None,
        CallStatus::Failed => Some('!'),
        CallStatus::Cancelled | CallStatus::Interrupted => Some('✕'),
    }
}

#[cfg(test)]
mod tests {
    use rolltap_rollout::ids::{CallId, TrialId};

    use super::*;

    /// Returns the timeline of a call of each status, one after the other, and of a last call that repeats the first.
    fn drawing(changes: &[PolicyChange]) -> String {
        let at = |second| Timestamp::from_second(second).unwrap();
        let calls: Vec<Call> = (0_i64..)
            .zip([0, 1, 2, 3, 0])
            .map(|(index, status)| {
                let (id, trial) = (CallId::new(format!("call-{index}")), TrialId::new("trial"));
                let mut call = Call::begun(id.unwrap(), trial.unwrap(), 0, at(index * 10));
                call.status = CallStatus::ALL[status];
                call.ended_at = at(index * 10 + 5);
                call
            })
            .collect();
        let bar = |call| Bar { call, conversation: None, repeats: None };
        let mut bars: Vec<Bar<'_>> = calls.iter().map(bar).collect();
        bars[4].repeats = Some(&calls[0]);
        timeline(&bars, changes).into_string()
    }

    #[test]
    fn failed_cut_and_repeated_calls_have_marks_with_their_meaning() {
        let drawn = drawing(&[]);
        let marks = |mark: char| drawn.matches(&format!("\">{mark}</text>")).count();
        assert_eq!((marks('!'), marks('✕'), marks('↻')), (1, 2, 1), "{drawn}");
        for meaning in ["↻ repeats", "✕ is cancelled or interrupted", "! has failed"] {
            assert!(drawn.contains(meaning), "{meaning}: {drawn}");
        }
        assert!(!drawn.contains("vertical line"), "{drawn}");
    }

    #[test]
    fn changes_of_the_version_within_the_calls_are_lines() {
        let change = |version, second| PolicyChange {
            version,
            label: format!("step-{version}"),
            is_set: true,
            at: Timestamp::from_second(second).unwrap(),
        };
        let drawn = drawing(&[change(1, 22), change(2, 100)]);
        assert_eq!(drawn.matches("<line class=\"version\"").count(), 1, "{drawn}");
        // The calls last 45 seconds, and the change comes after 22 of them.
        assert!(drawn.contains("x1=\"456\"") && drawn.contains("version 1<title>step-1"), "{drawn}");
    }
}

//! The timeline of a trial: its calls as bars, the pauses of the trainer as areas, and the changes of the policy version
//! as lines.

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use rolltap_proxy::store::{Pause, PolicyChange};
use rolltap_rollout::call::{Call, CallStatus};

use super::format::{count, duration, length};
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
        let ends = bars.iter().flat_map(|bar| [Some(bar.call.ended_at), bar.replayed_at]);
        Self { begin, end: ends.flatten().max().unwrap_or_default() }
    }

    /// Returns the part of a pause that is on the axis, from its beginning to its end in pixels.
    fn part_of(self, pause: &Pause) -> Option<(f64, f64)> {
        let begin = pause.began_at.max(self.begin);
        let end = pause.ended_at.map_or(self.end, |end| end.min(self.end));
        (begin <= end).then(|| (self.at(begin), self.at(end)))
    }

    /// Returns the position of a time in pixels.
    fn at(self, time: Timestamp) -> f64 {
        let whole = self.end.duration_since(self.begin).as_secs_f64().max(1e-6);
        (time.duration_since(self.begin).as_secs_f64() / whole * WIDTH).round() + MARGIN
    }
}

/// Returns the calls as bars over time: the wait for the first token, and the answer.
pub(super) fn timeline(bars: &[Bar<'_>], changes: &[PolicyChange], pauses: &[Pause]) -> Markup {
    let axis = Axis::of(bars);
    let changes: Vec<_> =
        changes.iter().filter(|change| (axis.begin..=axis.end).contains(&change.at)).collect();
    let pauses: Vec<_> = pauses.iter().filter_map(|pause| Some((pause, axis.part_of(pause)?))).collect();
    let top = if changes.is_empty() { 0 } else { LINE };
    let (width, height) = (WIDTH + 2.0 * MARGIN, top + bars.len() * LINE);
    html! {
        h2 { "Timeline" }
        p.facts { (count(bars.len() as u64)) " calls in " (duration(axis.begin, axis.end)) ". " (legend(bars, !pauses.is_empty(), !changes.is_empty())) }
        (pauses_in_words(&pauses))
        div.scrolls tabindex="0" role="img" aria-label="Timeline of the calls; the table of calls has the same data" {
            svg.timeline width=(width) height=(height) viewBox=(format!("0 0 {width} {height}")) {
                @for (_, (begin, end)) in &pauses {
                    rect.pause x=(begin) y="0" height=(height) width=((end - begin).max(2.0)) {}
                }
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
fn legend(bars: &[Bar<'_>], has_pauses: bool, has_changes: bool) -> Markup {
    let has = |mark: char| bars.iter().any(|bar| ending(bar.call.status) == Some(mark));
    html! {
        "The light part of a bar is the wait for the first token, and includes pauses of the trainer."
        @if bars.iter().any(|bar| bar.repeats.is_some()) { " ↻ repeats the request of an earlier call." }
        @if bars.iter().any(|bar| bar.replayed_at.is_some()) { " ⮌ is a retry that got the recorded answer of the call." }
        @if has('✕') { " ✕ is cancelled or interrupted." }
        @if has('!') { " ! has failed." }
        @if has_pauses { " In a grey area the trainer held new calls back." }
        @if has_changes { " A vertical line is a change of the policy version." }
    }
}

/// Returns the number of pauses and their length, for readers who do not see the drawing.
fn pauses_in_words(pauses: &[(&Pause, (f64, f64))]) -> Markup {
    let is_current = pauses.iter().any(|(pause, _)| pause.ended_at.is_none());
    let ended = pauses.iter().filter_map(|(pause, _)| Some(pause.ended_at?.duration_since(pause.began_at)));
    let all = ended.fold(SignedDuration::ZERO, SignedDuration::saturating_add);
    html! { @if !pauses.is_empty() {
        p.facts {
            "The trainer paused " (count(pauses.len() as u64)) @if pauses.len() == 1 { " time" } @else { " times" }
            ", for " (length(all)) " in all" @if is_current { "; the last pause has not ended" } "."
        }
    } }
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
        @if let Some(at) = bar.replayed_at {
            text.replayed x=(axis.at(at)) y=(y + LINE - 3) { "⮌" title { "A retry got the recorded answer of " (call.call_id) } }
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
    fn drawing(changes: &[PolicyChange], pauses: &[Pause]) -> String {
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
        let bar = |call| Bar { call, conversation: None, repeats: None, replayed_at: None };
        let mut bars: Vec<Bar<'_>> = calls.iter().map(bar).collect();
        bars[4].repeats = Some(&calls[0]);
        bars[0].replayed_at = Some(at(9));
        timeline(&bars, changes, pauses).into_string()
    }

    #[test]
    fn failed_cut_and_repeated_calls_have_marks_with_their_meaning() {
        let drawn = drawing(&[], &[]);
        let marks = |mark: char| drawn.matches(&format!("\">{mark}</text>")).count();
        assert_eq!((marks('!'), marks('✕'), marks('↻')), (1, 2, 1), "{drawn}");
        for meaning in ["↻ repeats", "⮌ is a retry", "✕ is cancelled or interrupted", "! has failed"] {
            assert!(drawn.contains(meaning), "{meaning}: {drawn}");
        }
        assert!(!drawn.contains("vertical line") && !drawn.contains("paused"), "{drawn}");
        // The calls last 45 seconds. The retry comes after 9 of them.
        assert!(drawn.contains("class=\"replayed\" x=\"196\""), "{drawn}");
    }

    #[test]
    fn pauses_during_the_calls_are_areas() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let pause = |began, ended: Option<i64>| Pause { began_at: at(began), ended_at: ended.map(at) };
        let drawn =
            drawing(&[], &[pause(-9, Some(9)), pause(18, Some(27)), pause(36, None), pause(99, None)]);
        assert_eq!(drawn.matches("<rect class=\"pause\"").count(), 3, "{drawn}");
        for (x, width) in [(16, 180), (376, 180), (736, 180)] {
            assert!(
                drawn.contains(&format!("class=\"pause\" x=\"{x}\" y=\"0\" height=\"70\" width=\"{width}\"")),
                "{drawn}"
            );
        }
        let words = "The trainer paused 3 times, for 27 s in all; the last pause has not ended.";
        assert!(drawn.contains(words) && drawn.contains("In a grey area"), "{drawn}");
    }

    #[test]
    fn changes_of_the_version_within_the_calls_are_lines() {
        let change = |version, second| PolicyChange {
            version,
            label: format!("step-{version}"),
            is_set: true,
            at: Timestamp::from_second(second).unwrap(),
        };
        let drawn = drawing(&[change(1, 22), change(2, 100)], &[]);
        assert_eq!(drawn.matches("<line class=\"version\"").count(), 1, "{drawn}");
        // The calls last 45 seconds, and the change comes after 22 of them.
        assert!(drawn.contains("x1=\"456\"") && drawn.contains("version 1<title>step-1"), "{drawn}");
    }
}

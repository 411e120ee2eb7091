//! Numbers and times as texts of a page.

use jiff::{SignedDuration, Timestamp};
use rolltap_orchestrator::common::words::spaced;

/// The text for a value that is not known.
pub(crate) const UNKNOWN: &str = "–";

/// Returns a count with thin spaces between its thousands, at which a browser breaks no line.
pub(crate) fn count(number: impl TryInto<u64>) -> String {
    spaced(number.try_into().unwrap_or(u64::MAX)).replace(' ', "\u{202f}")
}

/// Returns a number with at most `decimals` decimals.
pub(crate) fn decimal(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Returns a reward, or the sign for none.
pub(crate) fn reward(reward: Option<f64>) -> String {
    reward.map_or_else(|| UNKNOWN.to_owned(), |reward| decimal(reward, 4))
}

/// Returns the time from one moment to another, in the unit that fits.
pub(crate) fn duration(from: Timestamp, to: Timestamp) -> String {
    length(to.duration_since(from))
}

/// Returns a length of time, in the unit that fits.
pub(crate) fn length(time: SignedDuration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..1.0 => format!("{} ms", (seconds * 1000.0).round()),
        1.0..120.0 => format!("{} s", decimal(seconds, 1)),
        _ => format!("{} min {} s", (seconds / 60.0).floor(), (seconds % 60.0).floor()),
    }
}

/// Returns a length in bytes, in the unit that fits.
pub(crate) fn bytes(length: u64) -> String {
    match length {
        0..1_000 => format!("{length} B"),
        1_000..1_000_000 => format!("{} kB", decimal(length as f64 / 1e3, 1)),
        _ => format!("{} MB", decimal(length as f64 / 1e6, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(count(999_u64), "999");
        assert_eq!(count(1_234_567_u64), "1\u{202f}234\u{202f}567");
    }

    #[test]
    fn decimals_end_at_the_last_that_counts() {
        assert_eq!(decimal(1.0, 4), "1");
        assert_eq!(decimal(-0.12345, 4), "-0.1235");
        assert_eq!(decimal(100.0, 0), "100");
        assert_eq!(reward(None), UNKNOWN);
    }
}

//! Numbers and times as people read them.

use std::time::Duration;

/// Formats a count with its noun: `1 trial`, `2 trials`, `3 branches`.
pub fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ if noun.ends_with("ch") => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

/// Formats a time: `0:07`, `12:30`, `1:02:03`.
pub(crate) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Formats a large number in at most five characters: `950`, `12.3k`, `4.0M`.
pub(crate) fn short(number: u64) -> String {
    let units = [(1_000_000_000_u64, "G"), (1_000_000, "M"), (1_000, "k")];
    let found = units.into_iter().find(|(unit, _)| number >= *unit);
    match found {
        None => number.to_string(),
        Some((unit, name)) if number >= unit.saturating_mul(100) => format!("{}{name}", number / unit),
        Some((unit, name)) => format!("{}.{}{name}", number / unit, number % unit * 10 / unit),
    }
}

/// Formats a large number with a space between thousands: `12 345 678`.
pub fn spaced(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with at most three decimals and without trailing zeros.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    // A small negative number rounds to `-0.000`.
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Returns the mean of these values, or `None` if there are none.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the first line of a text that is not blank, without control characters. Appends ` […]` if there are more.
pub(crate) fn first_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default().replace(char::is_control, " ");
    if lines.next().is_some() { format!("{} […]", first.trim_end_matches(':')) } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_are_correct() {
        let written = [counted(0, "trial"), counted(1, "trial"), counted(2, "trial"), counted(2, "branch")];
        assert_eq!(written, ["0 trials", "1 trial", "2 trials", "2 branches"]);
    }

    #[test]
    fn times_have_hours_only_if_needed() {
        assert_eq!(
            [7, 750, 3723].map(|seconds| clock(Duration::from_secs(seconds))),
            ["0:07", "12:30", "1:02:03"]
        );
    }

    #[test]
    fn numbers_are_short() {
        let written = [1.0, 0.5, 0.0, -0.0001, 2.0 / 3.0, 100.0].map(number);
        assert_eq!(written, ["1", "0.5", "0", "0", "0.667", "100"]);
        assert_eq!(
            [950, 1_000, 12_345, 123_456, 4_000_000].map(short),
            ["950", "1.0k", "12.3k", "123k", "4.0M"]
        );
        assert_eq!([7, 1_000, 12_345_678].map(spaced), ["7", "1 000", "12 345 678"]);
    }

    proptest::proptest! {
        #[test]
        fn every_number_fits(value: u64, small in 0_u64..2_000_000_000) {
            proptest::prop_assert!(short(small).len() <= 5, "{}", short(small));
            proptest::prop_assert_eq!(spaced(value).replace(' ', ""), value.to_string());
        }

        #[test]
        fn a_first_line_is_one_line(text: String) {
            proptest::prop_assert!(!first_line(&text).contains(char::is_control));
        }
    }
}

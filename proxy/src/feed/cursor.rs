//! The position of a reader in the feed.

use std::fmt;
use std::str::FromStr;

/// The last trial that a reader has, in one of the two orders. For the reader it is opaque text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// In order of completion: the number of that trial's completion. Written as `17`.
    Completions(u64),
    /// In order of release. Written as `20-17`.
    Releases(Release),
}

/// A trial's place among trials that are released to readers of closed groups. The order is by the number that released
/// the trial, and then by the number of its completion. Both come from one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release {
    /// The number of the closing of its group. It is the number of its own completion if it has no group or is late.
    pub(crate) released: u64,
    /// The number of its completion.
    pub(crate) completed: u64,
}

/// The reason why a cursor is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CursorError {
    #[error(
        "{0:?} is no cursor: give `after` the `cursor` of the last line that you keep, as it is, or leave it out to \
         begin with the first trial"
    )]
    Malformed(String),
    #[error("cursor {0} is of a reading with closed_groups=true: add that, or begin anew without `after`")]
    OfReleases(Cursor),
    #[error(
        "cursor {0} is of a reading without closed_groups: take that away, or begin anew without `after`"
    )]
    OfCompletions(Cursor),
    #[error(
        "cursor {cursor} lies ahead of all that is kept here (the last number is {last}): it is of another data \
         directory; begin anew without `after`"
    )]
    Ahead { cursor: Cursor, last: u64 },
    #[error(
        "trials up to number {through}, which became complete after cursor {cursor}, are gone: their retention was over \
         (--retain-days, --retain-gib) before this reader had them; add allow_gap=true to go on with what is left"
    )]
    Gap { cursor: Cursor, through: u64 },
}

impl Cursor {
    /// Returns the cursor before the first trial.
    pub(crate) fn begin(closed_groups: bool) -> Self {
        if closed_groups { Self::Releases(Release::default()) } else { Self::Completions(0) }
    }

    /// Parses a reader's cursor and checks it for this kind of reading. `last` is the last number given so far.
    pub(crate) fn read(text: &str, closed_groups: bool, last: u64) -> Result<Self, CursorError> {
        let cursor: Self = text.parse()?;
        match cursor {
            Self::Completions(_) if closed_groups => Err(CursorError::OfCompletions(cursor)),
            Self::Releases(_) if !closed_groups => Err(CursorError::OfReleases(cursor)),
            // A cursor from another data directory would silently skip trials.
            _ if cursor.newest() > last => Err(CursorError::Ahead { cursor, last }),
            _ => Ok(cursor),
        }
    }

    /// Returns the number up to which the reader has every trial that existed.
    pub(crate) fn reached(self) -> u64 {
        match self {
            Self::Completions(sequence) => sequence,
            Self::Releases(Release { released, .. }) => released,
        }
    }

    /// Returns the highest number in the cursor.
    pub(crate) fn newest(self) -> u64 {
        match self {
            Self::Completions(sequence) => sequence,
            Self::Releases(Release { released, completed }) => released.max(completed),
        }
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        // Only digits are valid: `parse` alone would also accept a sign.
        let number = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_number)
        };
        let cursor = match text.split_once('-') {
            None => number(text).map(Self::Completions),
            Some((released, completed)) => number(released)
                .zip(number(completed))
                .map(|(released, completed)| Self::Releases(Release { released, completed })),
        };
        cursor.ok_or_else(|| CursorError::Malformed(text.to_owned()))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completions(sequence) => write!(f, "{sequence}"),
            Self::Releases(Release { released, completed }) => write!(f, "{released}-{completed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_wrong_cursor_says_what_to_do() {
        let error = |text, closed_groups| Cursor::read(text, closed_groups, 20).unwrap_err().to_string();
        for malformed in ["", "x", "-", "1-", "-1", "+1", "1-2-3", "99999999999999999999", " 1"] {
            assert!(error(malformed, false).contains("is no cursor"), "{malformed}");
        }
        assert!(error("17", true).contains("without closed_groups"));
        assert!(error("20-17", false).contains("closed_groups=true"));
        assert!(error("21", false).contains("the last number is 20"));
        assert!(error("21-1", true).contains("another data directory"));
        assert!(Cursor::read("20", false, 20).is_ok() && Cursor::read("20-17", true, 20).is_ok());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(released in any::<u64>(), completed in any::<u64>()) {
            for cursor in [Cursor::Completions(completed), Cursor::Releases(Release { released, completed })] {
                prop_assert_eq!(cursor.to_string().parse(), Ok(cursor));
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in "[0-9+-]{0,24}|.*") {
            if let Ok(cursor) = text.parse::<Cursor>() {
                // Formatting may only drop leading zeros.
                prop_assert!(text.len() >= cursor.to_string().len());
            }
        }
    }

    #[test]
    fn fuzz_cursor() {
        rolltap_testing::fuzz!("cursor", |text| {
            let Ok(text) = std::str::from_utf8(text) else { return };
            if let Ok(cursor) = text.parse::<Cursor>() {
                assert_eq!(cursor.to_string().parse(), Ok(cursor));
            }
        });
    }
}

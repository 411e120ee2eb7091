//! A duration in the form of the admin plane: a number of seconds.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number of seconds, with fractions: finite, not negative, at most a hundred years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
#[schemars(extend("minimum" = 0, "maximum" = LONGEST))]
pub struct Seconds(Duration);

/// The number is not a valid duration.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is no number of seconds: give one from 0 to {LONGEST}")]
pub struct InvalidSeconds(f64);

/// A hundred years, in seconds: the limit ensures that a current time plus a duration is a valid timestamp.
const LONGEST: f64 = 100.0 * 365.0 * 24.0 * 3600.0;

impl Seconds {
    /// Returns the time at this duration after `begin`, or `None` if it is beyond the range of timestamps.
    pub fn after(self, begin: Timestamp) -> Option<Timestamp> {
        begin.checked_add(SignedDuration::try_from(self.0).ok()?).ok()
    }
}

impl TryFrom<f64> for Seconds {
    type Error = InvalidSeconds;

    fn try_from(seconds: f64) -> Result<Self, InvalidSeconds> {
        // The conversion rejects NaN, infinity and negative numbers. The filter rejects durations that are too long.
        let duration = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= LONGEST);
        duration.map(Self).ok_or(InvalidSeconds(seconds))
    }
}

impl From<Seconds> for f64 {
    fn from(seconds: Seconds) -> Self {
        seconds.0.as_secs_f64()
    }
}

impl From<Seconds> for Duration {
    fn from(seconds: Seconds) -> Self {
        seconds.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_length_of_time_is_refused() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e10] {
            let error = Seconds::try_from(bad).unwrap_err().to_string();
            assert!(error.contains("no number of seconds"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn it_is_kept_as_it_was_given(micros in 0..3_000_000_000_000_000_u64) {
            let given = Seconds(Duration::from_micros(micros));
            let json = serde_json::to_string(&given).unwrap();
            let read: Seconds = serde_json::from_str(&json).unwrap();
            // A double represents a century with the precision of a microsecond, but not of a nanosecond.
            prop_assert!(read.0.abs_diff(given.0) < Duration::from_micros(1));
            prop_assert!(read.after(Timestamp::UNIX_EPOCH).is_some());
        }

        #[test]
        fn arbitrary_numbers_never_panic(number in any::<f64>()) {
            let after = Seconds::try_from(number).ok().and_then(|seconds| seconds.after(Timestamp::MAX));
            prop_assert!(after.is_none_or(|at| at == Timestamp::MAX));
        }
    }
}

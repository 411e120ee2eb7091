//! Time limits that scale with the machine.

use std::time::Duration;

/// How many times slower this machine is than a quiet one. `scripts/test` measures it.
const VARIABLE: &str = "ROLLTAP_TEST_SLOWNESS";
/// A higher factor is a wrong measurement, and a test that hangs would take hours to fail.
const MOST: f64 = 50.0;

/// Returns the time after which a wait has failed, for `seconds` on a quiet machine. It bounds conditions that never
/// become true: a condition that does takes far less.
#[must_use]
pub fn limit(seconds: u64) -> Duration {
    scaled(seconds, std::env::var(VARIABLE).ok().as_deref())
}

/// Scales `seconds` by a factor. A factor that is missing, unreadable or below 1 counts as 1.
fn scaled(seconds: u64, factor: Option<&str>) -> Duration {
    let factor = factor.and_then(|text| text.parse::<f64>().ok()).filter(|factor| factor.is_finite());
    Duration::from_secs(seconds).mul_f64(factor.unwrap_or(1.0).clamp(1.0, MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_grow_with_the_slowness_of_the_machine_and_never_shrink() {
        for (factor, seconds) in [
            (None, 20),
            (Some("2.5"), 50),
            (Some("0.5"), 20),
            (Some("soon"), 20),
            (Some("inf"), 20),
            (Some("1e9"), 1000),
        ] {
            assert_eq!(scaled(20, factor), Duration::from_secs(seconds), "{factor:?}");
        }
    }
}

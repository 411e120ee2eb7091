//! Sample sizes by tier.

/// The tier: `long`, or any other value for the default one. `scripts/test --long` sets it.
const VARIABLE: &str = "ROLLTAP_TEST_TIER";

/// Returns whether the long tier runs.
#[must_use]
pub fn is_long() -> bool {
    std::env::var(VARIABLE).is_ok_and(|tier| tier == "long")
}

/// Returns the size of a sample: the first in the default tier, the second in the long one.
#[must_use]
pub fn sample<T>(usual: T, long: T) -> T {
    if is_long() { long } else { usual }
}

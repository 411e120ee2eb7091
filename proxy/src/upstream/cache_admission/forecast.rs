//! The tokens that growing conversations will need at once.

use std::cmp::Reverse;

/// A conversation that grows until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Growing {
    /// Its tokens.
    pub(super) now: u64,
    /// The tokens that it still grows by. It is removed after them.
    pub(super) left: u64,
}

/// Returns the largest number of tokens that these conversations have at once until all have ended, if they grow at the
/// same pace. This is the estimate of the Past-Future scheduler (LightLLM, ASPLOS 2025).
pub(super) fn peak(mut conversations: Vec<Growing>) -> u64 {
    conversations.sort_unstable_by_key(|growing| Reverse(growing.left));
    let (mut now, mut peak) = (0_u64, 0_u64);
    // When a conversation ends, those before it are still there, and each has grown by as much as it.
    for (growing, number) in conversations.iter().zip(1..) {
        now = now.saturating_add(growing.now);
        peak = peak.max(now.saturating_add(growing.left.saturating_mul(number)));
    }
    peak
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn conversations_that_end_at_different_times_need_less_than_their_sum() {
        let of =
            |lengths: &[(u64, u64)]| peak(lengths.iter().map(|&(now, left)| Growing { now, left }).collect());
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[(0, 1000), (0, 1000)]), 2000, "they end together");
        // The first ends with 1,000 tokens when the second has 600.
        assert_eq!(of(&[(900, 100), (500, 500)]), 1600);
        assert_eq!(of(&[(900, 0), (0, 100)]), 900);
    }

    proptest! {
        #[test]
        fn the_peak_is_that_of_a_simulation(lengths in prop::collection::vec((0_u64..50, 0_u64..20), 0..8)) {
            let total = |step: u64| lengths.iter()
                .filter(|(_, left)| step <= *left).map(|(now, _)| now + step).sum::<u64>();
            let simulated = (0..20).map(total).max().unwrap_or(0);
            let growing = lengths.iter().map(|&(now, left)| Growing { now, left }).collect();
            prop_assert_eq!(peak(growing), simulated);
        }
    }
}

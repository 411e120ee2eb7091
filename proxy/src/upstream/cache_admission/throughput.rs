//! Predicts the throughput of a server for another number of open trials.
//!
//! A trial alternates between a pause, for its tools, and a call. A call takes its decoding, which slows down while the server
//! computes prompts. With more open trials, more calls overlap, and more of their conversations are evicted before their next
//! turn, so a call computes more tokens ([`missed_at`]). The throughput `X` (calls per second) of `n` trials satisfies
//! `X = n / (pause + decode / (1 - X * price * computed))`: the parenthesis is the share of time without prompts. In
//! simulations of vLLM's scheduler, `X` is within a tenth of the measured rate also where the cache thrashes.

/// The share of the tokens of earlier calls that is evicted before the next call, by the number of open conversations relative to
/// as many as the cache holds. Between these points it is linear. It was measured with simulated conversations of different
/// lengths on vLLM's eviction of least recently used blocks.
const MISSED: [(f64, f64); 8] =
    [(0.0, 0.0), (0.8, 0.0), (1.0, 0.05), (1.33, 0.35), (1.67, 0.63), (2.0, 0.75), (2.6, 0.83), (4.0, 0.9)];

/// The use of a server by its trials: a mean of all servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// The number of open trials.
    pub(super) trials: f64,
    /// The number of open conversations, relative to as many as the cache holds.
    pub(super) crowding: f64,
    /// The seconds between two calls of a trial.
    pub(super) pause: f64,
    /// The seconds of a call on a server without other prompts.
    pub(super) decode: f64,
    /// The tokens of a prompt that no earlier call of the trial had.
    pub(super) new: f64,
    /// The tokens of a prompt that an earlier call of the trial had.
    pub(super) repeated: f64,
    /// The tokens of a conversation in the cache while one of its calls is in flight.
    pub(super) in_cache: f64,
    /// The seconds in which the server computes a token of a prompt. Above 0.
    pub(super) price: f64,
    /// The tokens that the cache holds.
    pub(super) capacity: f64,
}

impl Load {
    /// Returns the calls per second of this many times as many open trials.
    pub(super) fn throughput(&self, scale: f64) -> f64 {
        let Self { pause, decode, new, repeated, in_cache, price, capacity, .. } = *self;
        let trials = self.trials * scale;
        let prefill = price * (new + repeated * missed_at(self.crowding * scale));
        // The smaller solution of the quadratic equation. At the larger one, the server would have no time left.
        let sum = pause + decode + trials * prefill;
        let root = (sum * sum - 4.0 * pause * prefill * trials).max(0.0).sqrt();
        let rate = 2.0 * trials / (sum + root);
        // The cache also holds the conversations of the calls in flight. Further calls wait for it.
        let in_flight = (trials - rate * pause) * in_cache;
        if in_flight > capacity { rate * capacity / in_flight } else { rate }
    }
}

/// Returns the share of the tokens of earlier calls that is evicted, at this crowding.
fn missed_at(crowding: f64) -> f64 {
    interpolated(&MISSED, crowding)
}

/// Returns the crowding at which this share of the tokens of earlier calls is evicted. Without misses it is the largest such
/// crowding.
pub(super) fn crowding_at(missed: f64) -> f64 {
    let inverse = MISSED.map(|(crowding, missed)| (missed, crowding));
    interpolated(&inverse, missed)
}

/// Returns the value at `x` on the lines between these points, which are sorted. Beyond the last one, its value.
fn interpolated(points: &[(f64, f64)], x: f64) -> f64 {
    let next = points.partition_point(|point| point.0 <= x);
    let last = points.last().map_or(0.0, |point| point.1);
    match (next.checked_sub(1).and_then(|at| points.get(at)), points.get(next)) {
        (Some(before), Some(after)) => {
            before.1 + (after.1 - before.1) * (x - before.0) / (after.0 - before.0)
        }
        _ => last,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Coding agents on a GPU whose cache holds 24 of their conversations.
    const CODING: Load = Load {
        trials: 24.0,
        crowding: 1.0,
        pause: 4.7,
        decode: 2.0,
        new: 800.0,
        repeated: 8000.0,
        in_cache: 8800.0,
        price: 0.000_05,
        capacity: 262_128.0,
    };

    #[test]
    fn trials_with_short_pauses_should_fit_and_those_with_long_ones_need_not() {
        assert!(CODING.throughput(1.0) > 1.5 * CODING.throughput(2.0));
        assert!(CODING.throughput(1.0) > CODING.throughput(0.5));
        let slow = Load { pause: 40.0, ..CODING };
        assert!(slow.throughput(3.0) > 1.5 * slow.throughput(1.0));
    }

    #[test]
    fn a_server_that_computes_all_the_time_answers_as_fast_as_it_computes() {
        let saturated = Load { crowding: 4.0, ..CODING };
        let most = 1.0 / (0.000_05 * (800.0 + 0.9 * 8000.0));
        let rate = saturated.throughput(100.0);
        assert!(rate <= most, "{rate} {most}");
        let unlimited = Load { capacity: f64::INFINITY, ..saturated };
        assert!((unlimited.throughput(100.0) / most - 1.0).abs() < 0.01);
    }

    #[test]
    fn shares_and_crowdings_are_inverse() {
        for missed in [0.02, 0.05, 0.2, 0.5, 0.7, 0.89] {
            assert!((missed_at(crowding_at(missed)) - missed).abs() < 1e-9, "{missed}");
        }
        assert!((crowding_at(0.0) - 0.8).abs() < 1e-9);
        assert_eq!((missed_at(9.0), crowding_at(1.0)), (0.9, 4.0));
    }

    proptest! {
        #[test]
        fn the_rate_satisfies_the_equation(
            trials in 0.1_f64..500.0, pause in 0.0_f64..100.0, decode in 0.01_f64..30.0,
            new in 0.0_f64..5000.0, repeated in 0.0_f64..50_000.0, price in 1e-6_f64..1e-3, crowding in 0.1_f64..5.0,
        ) {
            let in_cache = new + repeated;
            let load = Load { trials, crowding, pause, decode, new, repeated, in_cache, price, capacity: f64::INFINITY };
            let rate = load.throughput(1.0);
            let busy = rate * price * (new + repeated * missed_at(crowding));
            prop_assert!((0.0..1.0).contains(&busy), "{}", busy);
            let expected = trials / (pause + decode / (1.0 - busy));
            prop_assert!((rate / expected - 1.0).abs() < 1e-3, "{} {}", rate, expected);
        }
    }
}

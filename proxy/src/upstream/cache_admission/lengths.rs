//! The length that an open conversation will reach, from the lengths of those that ended and of those that are open.
//!
//! In the first minutes of a job only short trials have ended, so their mean is too low. The estimator of Kaplan and Meier
//! also counts the open conversations, each of which becomes at least as long as it is now.

use std::collections::VecDeque;

/// The number of ended conversations that count. Later ones displace earlier ones, because the policy changes.
const MOST: usize = 512;

/// The number of conversations of assumed length that count until [`ENOUGH`] have ended.
const ASSUMED: usize = 4;
const ENOUGH: usize = 32;

/// The lengths of conversations, in tokens, without the prompt that their kind shares.
#[derive(Debug, Default)]
pub(super) struct Lengths {
    ended: VecDeque<u64>,
    survival: Survival,
}

impl Lengths {
    /// Adds the length of a conversation that ended. It counts from the next [`Self::estimate`] on.
    pub(super) fn ended(&mut self, length: u64) {
        if self.ended.len() >= MOST {
            self.ended.pop_front();
        }
        self.ended.push_back(length);
    }

    /// Estimates the distribution of lengths anew, with these open conversations. `assumed` is the length that is expected
    /// before any has ended.
    pub(super) fn estimate(&mut self, open: impl Iterator<Item = u64>, assumed: u64) {
        let number = if self.ended.len() < ENOUGH { ASSUMED } else { 0 };
        let ended = self.ended.iter().copied().chain(std::iter::repeat_n(assumed, number));
        let all = ended.map(|length| (length, true)).chain(open.map(|length| (length, false)));
        self.survival = Survival::of(all.collect());
    }

    /// Returns the length that a conversation of this length is expected to reach.
    pub(super) fn expected(&self, now: u64) -> u64 {
        let left = self.survival.left(now).unwrap_or(0.0);
        now.saturating_add(left.round() as u64)
    }
}

/// The share of conversations that are longer than a length, by that length.
#[derive(Debug, Default)]
struct Survival {
    /// The lengths at which conversations ended, in ascending order.
    steps: Vec<Step>,
    /// The share that is longer than all known lengths.
    rest: f64,
    /// The largest known length.
    longest: f64,
    /// The tokens per end of all conversations. It is the expected rest beyond the largest known length.
    per_end: f64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    length: f64,
    /// The share that is longer than the step before this one.
    share: f64,
    /// The sum of all shares beyond this length, that is the expected number of further tokens times `share` after it.
    area: f64,
}

impl Survival {
    /// Estimates the shares from lengths, each with whether the conversation ended at it.
    fn of(mut lengths: Vec<(u64, bool)>) -> Self {
        // Of equal lengths, those that ended come first: the open ones are longer.
        lengths.sort_unstable_by_key(|&(length, has_ended)| (length, !has_ended));
        let ends = lengths.iter().filter(|(_, has_ended)| *has_ended).count();
        let Some(&(longest, _)) = lengths.last().filter(|_| ends > 0) else { return Self::default() };
        let all: f64 = lengths.iter().map(|&(length, _)| length as f64).sum();
        let (mut share, mut steps) = (1.0, Vec::with_capacity(ends));
        for (&(length, has_ended), at_risk) in lengths.iter().zip((1..=lengths.len()).rev()) {
            if has_ended {
                steps.push(Step { length: length as f64, share, area: 0.0 });
                share *= 1.0 - 1.0 / at_risk as f64;
            }
        }
        let (longest, per_end) = (longest as f64, all / ends as f64);
        let (mut area, mut beyond, mut after) = (share * per_end, longest, share);
        for step in steps.iter_mut().rev() {
            area += after * (beyond - step.length);
            step.area = area;
            (beyond, after) = (step.length, step.share);
        }
        Self { steps, rest: share, longest, per_end }
    }

    /// Returns the expected number of further tokens at this length. `None` if no conversation has ended.
    fn left(&self, now: u64) -> Option<f64> {
        let now = now as f64;
        if self.steps.is_empty() {
            return None;
        }
        let next = self.steps.partition_point(|step| step.length <= now);
        Some(match self.steps.get(next) {
            Some(step) if step.share > 0.0 => (step.share * (step.length - now) + step.area) / step.share,
            _ if self.rest > 0.0 => (self.longest - now).max(0.0) + self.per_end,
            // All known conversations were shorter. This one may be at its end or not.
            _ => now / 4.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Enough ended conversations of each of these lengths, and these open ones.
    fn lengths(ended: &[u64], open: &[u64]) -> Lengths {
        let mut lengths = Lengths::default();
        (0..ENOUGH).for_each(|_| ended.iter().for_each(|&length| lengths.ended(length)));
        lengths.estimate(open.iter().copied(), 5000);
        lengths
    }

    #[test]
    fn a_conversation_becomes_as_long_as_the_longer_ones() {
        let known = lengths(&[100, 200, 300], &[]);
        assert_eq!([0, 100, 150, 250].map(|now| known.expected(now)), [200, 250, 250, 300]);
        assert_eq!(known.expected(400), 500, "longer than all");
    }

    #[test]
    fn open_conversations_show_that_the_ended_ones_were_short() {
        // One in ten ended after 100 tokens, and the others have grown to 1,000.
        let known = lengths(&[100], &[1000; 9 * ENOUGH]);
        let expected = known.expected(0);
        assert!((9000..9300).contains(&expected), "{expected}");
        assert!(known.expected(1000) >= 10_000);
        // As many that have just begun show nothing.
        assert_eq!(lengths(&[100, 200, 300], &[0; 50]).expected(0), 200);
    }

    #[test]
    fn a_few_short_conversations_decide_nothing() {
        let mut lengths = Lengths::default();
        assert_eq!(lengths.expected(7), 7);
        lengths.estimate(std::iter::empty(), 5000);
        assert_eq!((lengths.expected(0), lengths.expected(100)), (5000, 5000));
        lengths.ended(100);
        lengths.estimate(std::iter::empty(), 5000);
        assert_eq!(lengths.expected(0), 4020);
    }

    #[test]
    fn only_the_latest_lengths_count() {
        let mut lengths = Lengths::default();
        std::iter::repeat_n(9, 50)
            .chain(std::iter::repeat_n(100, MOST))
            .for_each(|length| lengths.ended(length));
        lengths.estimate(std::iter::empty(), 5000);
        assert_eq!(lengths.expected(0), 100);
    }

    proptest! {
        #[test]
        fn an_estimate_is_never_shorter_than_the_conversation(
            ended in prop::collection::vec(any::<u64>(), 0..20), open in prop::collection::vec(any::<u64>(), 0..20),
            now in any::<u64>(),
        ) {
            prop_assert!(lengths(&ended, &open).expected(now) >= now);
        }

        #[test]
        fn without_open_ones_it_is_the_mean_of_the_longer_ones(
            ended in prop::collection::vec(0_u64..1000, 1..16), now in 0_u64..1000,
        ) {
            let longer: Vec<_> = ended.iter().filter(|&&length| length > now).collect();
            if !longer.is_empty() {
                let mean = longer.iter().copied().sum::<u64>() as f64 / longer.len() as f64;
                let expected = lengths(&ended, &[]).expected(now) as f64;
                prop_assert!((expected - mean).abs() <= 1.0, "{} {}", expected, mean);
            }
        }
    }
}

//! The length that an open conversation will reach, from the lengths of those that ended and of those that are open.
//!
//! In the first minutes of a job only short trials have ended, so their mean is too low. The estimator of Kaplan and Meier
//! also counts the open conversations, each of which becomes at least as long as it is now. It covers only lengths that
//! enough conversations have reached.

use std::collections::VecDeque;

/// The number of ended conversations that count. Later ones displace earlier ones, because the policy changes.
const MOST: usize = 512;

/// The number of conversations, and their share of all, that must have reached a length before the estimate covers it. The
/// end of one of fewer would decide too much.
const ENOUGH: usize = 8;
const ENOUGH_SHARE: usize = 20;

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

    /// Estimates the distribution of lengths anew, with these open conversations. A conversation that becomes longer than
    /// enough others is expected to become as long as `assumed`.
    pub(super) fn estimate(&mut self, open: impl Iterator<Item = u64>, assumed: u64) {
        let ended = self.ended.iter().map(|&length| (length, true));
        self.survival = Survival::of(ended.chain(open.map(|length| (length, false))).collect(), assumed);
    }

    /// Returns the length that a conversation of this length is expected to reach.
    pub(super) fn expected(&self, now: u64) -> u64 {
        now.saturating_add(self.survival.left(now).round() as u64)
    }
}

/// The share of conversations that are longer than a length, by that length.
#[derive(Debug, Default)]
struct Survival {
    /// The lengths at which conversations ended, in ascending order, as far as enough have reached them.
    steps: Vec<Step>,
    /// The length that a conversation beyond these steps is expected to reach.
    assumed: f64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    length: f64,
    /// The share that is longer than the step before this one.
    share: f64,
    /// The expected number of further tokens beyond this length times the share that is longer than it.
    area: f64,
}

impl Survival {
    /// Estimates the shares from lengths, each with whether the conversation ended at it.
    fn of(mut lengths: Vec<(u64, bool)>, assumed: u64) -> Self {
        // Of equal lengths, those that ended come first: the open ones are longer.
        lengths.sort_unstable_by_key(|&(length, has_ended)| (length, !has_ended));
        let enough = ENOUGH.max(lengths.len() / ENOUGH_SHARE);
        let (mut share, mut steps) = (1.0, Vec::new());
        for (&(length, has_ended), reached) in lengths.iter().zip((enough..=lengths.len()).rev()) {
            if has_ended {
                steps.push(Step { length: length as f64, share, area: 0.0 });
                share *= 1.0 - 1.0 / reached as f64;
            }
        }
        let assumed = assumed as f64;
        let last = steps.last().map_or(0.0, |step: &Step| step.length);
        let (mut area, mut beyond, mut after) = (share * rest(last, assumed), last, share);
        for step in steps.iter_mut().rev() {
            area += after * (beyond - step.length);
            step.area = area;
            (beyond, after) = (step.length, step.share);
        }
        Self { steps, assumed }
    }

    /// Returns the expected number of further tokens at this length.
    fn left(&self, now: u64) -> f64 {
        let now = now as f64;
        let next = self.steps.partition_point(|step| step.length <= now);
        match self.steps.get(next) {
            Some(step) => (step.share * (step.length - now) + step.area) / step.share,
            None => rest(now, self.assumed),
        }
    }
}

/// Returns the expected number of further tokens where too few conversations have reached the length. One that is longer
/// than was assumed may be at its end or not.
fn rest(now: f64, assumed: f64) -> f64 {
    (assumed - now).max(now / 4.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ASSUMED: u64 = 5000;

    /// Enough ended conversations of each of these lengths, and these open ones.
    fn lengths(ended: &[u64], open: &[u64]) -> Lengths {
        let mut lengths = Lengths::default();
        (0..2 * ENOUGH).for_each(|_| ended.iter().for_each(|&length| lengths.ended(length)));
        lengths.estimate(open.iter().copied(), ASSUMED);
        lengths
    }

    /// Whether the length is this one, or longer by the few that are assumed to be longer than all.
    fn is_about(length: u64, expected: u64) -> bool {
        (expected..expected + ASSUMED / 4).contains(&length)
    }

    #[test]
    fn a_conversation_becomes_as_long_as_the_longer_ones() {
        let known = lengths(&[100, 200, 300], &[]);
        assert!(
            [(0, 200), (100, 250), (150, 250)].map(|(now, end)| is_about(known.expected(now), end))
                == [true; 3]
        );
        assert_eq!([400, 4999].map(|now| known.expected(now)), [ASSUMED, 6249], "longer than all");
    }

    #[test]
    fn open_conversations_show_that_the_ended_ones_were_short() {
        // One in ten ended after 100 tokens, and the others have grown to 1,000.
        let known = lengths(&[100], &[1000; 9 * 2 * ENOUGH]);
        assert_eq!(known.expected(0), (100 + 9 * ASSUMED) / 10);
        assert_eq!(known.expected(1000), ASSUMED);
        // As many that have just begun show nothing.
        assert!(is_about(lengths(&[100, 200, 300], &[0; 50]).expected(0), 200));
    }

    #[test]
    fn a_few_short_conversations_and_the_end_of_the_longest_decide_nothing() {
        let mut few = Lengths::default();
        assert_eq!(few.expected(8), 10);
        few.estimate(std::iter::empty(), ASSUMED);
        (0..ENOUGH - 1).for_each(|_| few.ended(100));
        few.estimate(std::iter::empty(), ASSUMED);
        assert_eq!((few.expected(0), few.expected(100)), (ASSUMED, ASSUMED));
        // All but one of a hundred are open, and shorter.
        let mut one = Lengths::default();
        one.ended(3000);
        one.estimate(std::iter::repeat_n(1000, 100), ASSUMED);
        assert_eq!(one.expected(0), ASSUMED);
    }

    #[test]
    fn only_the_latest_lengths_count() {
        let mut lengths = Lengths::default();
        let ended = std::iter::repeat_n(9, 50).chain(std::iter::repeat_n(100, MOST));
        ended.for_each(|length| lengths.ended(length));
        lengths.estimate(std::iter::empty(), 0);
        assert_eq!(lengths.expected(0), 101, "a few are longer than all");
    }

    proptest! {
        #[test]
        fn an_estimate_is_never_shorter_than_the_conversation(
            ended in prop::collection::vec(any::<u64>(), 0..20), open in prop::collection::vec(any::<u64>(), 0..20),
            now in any::<u64>(),
        ) {
            prop_assert!(lengths(&ended, &open).expected(now) >= now);
        }
    }
}

//! Corrects the size of a KV cache by the prefix hits that it gives.
//!
//! The forecast of lengths may be wrong, other clients may use the server, and an engine may cache less than it has blocks.
//! Each of these shows in the same figure: prompt tokens that an earlier call of the trial left in the cache, and that the
//! server computed again.

use super::report::CacheReport;

/// The bounds of the factor. Hits can be low for other reasons than the size, so the factor never takes more than half.
const LEAST: f64 = 0.5;
const MOST: f64 = 2.0;
/// The share of misses above which the factor falls, and below which it may rise. Between them it stays, so that it does
/// not oscillate.
const TOO_MANY: f64 = 0.15;
const FEW: f64 = 0.06;
const FALL: f64 = 0.9;
const RISE: f64 = 1.05;

/// The factor of one server, and the tokens since it was last reviewed.
#[derive(Debug)]
pub(super) struct Correction {
    factor: f64,
    /// The prompt tokens that should have been hits.
    expected: u64,
    hits: u64,
    queries: u64,
    preemptions: u64,
    /// Whether a trial waits for this server.
    is_short: bool,
    before: Option<CacheReport>,
}

impl Default for Correction {
    fn default() -> Self {
        Self { factor: 1.0, expected: 0, hits: 0, queries: 0, preemptions: 0, is_short: false, before: None }
    }
}

impl Correction {
    /// Returns the corrected size of a cache, in tokens.
    pub(super) fn size(&self, capacity: u64) -> u64 {
        (capacity as f64 * self.factor) as u64
    }

    /// Notes prompt tokens that should be hits.
    pub(super) fn expect(&mut self, tokens: u64) {
        self.expected = self.expected.saturating_add(tokens);
    }

    /// Notes that a trial was not admitted. Otherwise a larger factor would change nothing, and would be too large later.
    pub(super) fn was_short(&mut self) {
        self.is_short = true;
    }

    /// Takes a report, and reviews the factor once as many tokens as the cache holds should have been hits.
    pub(super) fn report(&mut self, report: &CacheReport) {
        // Counts that fall are those of a server that was started again.
        let before = self.before.replace(*report).filter(|before| before.queries <= report.queries);
        let Some(before) = before else { return };
        self.hits = self.hits.saturating_add(report.hits.saturating_sub(before.hits));
        self.queries = self.queries.saturating_add(report.queries - before.queries);
        self.preemptions =
            self.preemptions.saturating_add(report.preemptions.saturating_sub(before.preemptions));
        if self.expected >= report.capacity {
            self.review();
        }
    }

    fn review(&mut self) {
        let misses = 1.0 - self.hits as f64 / self.expected as f64;
        // If most prompts continue nothing that is known, the share of misses says little.
        let is_telling = self.expected >= self.queries / 2;
        if self.preemptions > 0 || (is_telling && misses > TOO_MANY) {
            self.factor = (self.factor * FALL).max(LEAST);
        } else if is_telling && misses < FEW && self.is_short {
            self.factor = (self.factor * RISE).min(MOST);
        }
        *self = Self { factor: self.factor, before: self.before, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1000;

    fn report(queries: u64, hits: u64, preemptions: u64) -> CacheReport {
        CacheReport { capacity: SIZE, block_size: 16, queries, hits, preemptions, ..CacheReport::default() }
    }

    /// Returns the size after `rounds` reviews, each of 1,000 tokens of which this many are hits.
    fn after(rounds: u64, hits: u64, is_short: bool) -> u64 {
        let mut correction = Correction::default();
        correction.report(&report(0, 0, 0));
        for round in 1..=rounds {
            correction.expect(SIZE);
            if is_short {
                correction.was_short();
            }
            correction.report(&report(round * SIZE, round * hits, 0));
        }
        correction.size(SIZE)
    }

    #[test]
    fn misses_make_it_smaller_and_hits_larger_within_bounds() {
        assert_eq!((after(1, 700, true), after(2, 700, true), after(99, 0, true)), (900, 810, 500));
        assert_eq!((after(1, 990, true), after(99, 1000, true)), (1050, 2000));
        assert_eq!(after(99, 900, true), SIZE, "between the thresholds nothing changes");
        assert_eq!(after(99, 1000, false), SIZE, "a size that suffices does not grow");
    }

    #[test]
    fn preemptions_make_it_smaller_whatever_is_hit() {
        let mut correction = Correction::default();
        correction.report(&report(0, 0, 5));
        correction.expect(SIZE);
        correction.report(&report(SIZE, SIZE, 6));
        assert_eq!(correction.size(SIZE), 900);
    }

    #[test]
    fn a_server_that_starts_again_and_prompts_of_others_decide_nothing() {
        let mut correction = Correction::default();
        correction.report(&report(50_000, 40_000, 9));
        correction.expect(SIZE);
        correction.report(&report(10, 0, 0));
        assert_eq!(correction.size(SIZE), SIZE);
        correction.report(&report(10 + 9 * SIZE, 0, 0));
        assert_eq!(correction.size(SIZE), SIZE, "most prompts were others'");
    }
}

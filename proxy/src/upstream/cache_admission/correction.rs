//! Corrects the size of a KV cache by what its misses cost.
//!
//! The forecast of lengths may be wrong, other clients may use the server, and an engine may cache less than it has blocks.
//! All of them lead to misses: prompt tokens that an earlier call of the trial left in the cache, and that the server
//! computes again. Where misses take little of the trials' time, because prompts are short or tools are slow, more open
//! trials increase the throughput.

use super::report::CacheReport;

/// The bounds of the factor.
const LEAST: f64 = 0.5;
const MOST: f64 = 8.0;
/// The share of the trials' time that misses take above which the factor falls, and below which it may rise. Between them
/// it stays, so that it does not oscillate.
const TOO_MUCH: f64 = 0.25;
const LITTLE: f64 = 0.15;
const FALL: f64 = 0.9;
const RISE: f64 = 1.1;
/// The factor is reviewed after as many expected hits as this many caches have tokens. The last change has taken effect by
/// then.
const REVIEW_AFTER: u64 = 1;

/// The factor of one server, and the figures since it was last reviewed.
#[derive(Debug)]
pub(super) struct Correction {
    factor: f64,
    since: Figures,
    before: Option<(CacheReport, f64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// The prompt tokens that should have been hits.
    expected: u64,
    hits: u64,
    queries: u64,
    calls: u64,
    preemptions: u64,
    /// The seconds in which requests waited for their first token.
    waited: f64,
    /// The seconds in which trials were open, of all trials together.
    open: f64,
    /// Whether a trial waits for this server.
    is_short: bool,
}

impl Default for Correction {
    fn default() -> Self {
        Self { factor: 1.0, since: Figures::default(), before: None }
    }
}

impl Correction {
    /// Returns the corrected size of a cache, in tokens.
    pub(super) fn size(&self, capacity: u64) -> u64 {
        (capacity as f64 * self.factor) as u64
    }

    /// Counts a call, with the prompt tokens that should be hits.
    pub(super) fn expect(&mut self, tokens: u64) {
        self.since.expected = self.since.expected.saturating_add(tokens);
        self.since.calls = self.since.calls.saturating_add(1);
    }

    /// Allows the factor to rise, because a trial was not admitted. Otherwise the factor would rise without any effect, and
    /// would be too large later.
    pub(super) fn was_short(&mut self) {
        self.since.is_short = true;
    }

    /// Adds what happened since the last report, and reviews the factor. `open` is the number of open trials, and `now` is in
    /// seconds.
    pub(super) fn report(&mut self, report: &CacheReport, open: usize, now: f64) {
        // Counts fall when a server starts again.
        let before =
            self.before.replace((*report, now)).filter(|(before, _)| before.queries <= report.queries);
        let Some((before, then)) = before else { return };
        let since = &mut self.since;
        since.hits = since.hits.saturating_add(report.hits.saturating_sub(before.hits));
        since.queries = since.queries.saturating_add(report.queries - before.queries);
        since.preemptions =
            since.preemptions.saturating_add(report.preemptions.saturating_sub(before.preemptions));
        since.waited += (report.first_token_seconds - before.first_token_seconds).max(0.0);
        since.open += open as f64 * (now - then).max(0.0);
        if since.expected >= report.capacity.saturating_mul(REVIEW_AFTER) {
            self.factor = (self.factor * since.change()).clamp(LEAST, MOST);
            self.since = Figures::default();
        }
    }
}

impl Figures {
    /// Returns the change of the factor.
    fn change(&self) -> f64 {
        // A preemption costs as much as a miss of a whole prompt.
        if self.preemptions > self.calls / 10 {
            return FALL;
        }
        // If most prompts continue nothing that is known, the figures are those of other clients.
        if self.expected < self.queries / 2 {
            return 1.0;
        }
        let computed = self.queries.saturating_sub(self.hits).max(1);
        let again = self.expected.saturating_sub(self.hits).min(computed);
        let share = again as f64 / computed as f64;
        // Without times, all of the trials' time is assumed to be waiting for first tokens.
        let waiting =
            if self.waited > 0.0 { (self.waited / self.open.max(f64::EPSILON)).min(1.0) } else { 1.0 };
        match share * waiting {
            wasted if wasted > TOO_MUCH => FALL,
            wasted if wasted < LITTLE && self.is_short => RISE,
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1000;

    /// A round of 2,000 prompt tokens, all of them continuations, in ten seconds with four open trials.
    struct Round {
        hits: u64,
        /// The seconds until first tokens.
        waited: f64,
        is_short: bool,
        preemptions: u64,
    }

    const USUAL: Round = Round { hits: 2000, waited: 2.0, is_short: true, preemptions: 0 };

    /// Returns the size after this many such rounds.
    fn after(rounds: u32, round: &Round) -> u64 {
        let mut correction = Correction::default();
        let mut report = CacheReport { capacity: SIZE, block_size: 16, ..CacheReport::default() };
        correction.report(&report, 4, 0.0);
        for number in 1..=rounds {
            correction.expect(2 * SIZE);
            if round.is_short {
                correction.was_short();
            }
            report.queries += 2 * SIZE;
            report.hits += round.hits;
            report.preemptions += round.preemptions;
            report.first_token_seconds += round.waited;
            correction.report(&report, 4, f64::from(number) * 10.0);
        }
        correction.size(SIZE)
    }

    #[test]
    fn misses_that_cost_time_make_it_smaller_and_others_larger_within_bounds() {
        let costly = Round { hits: 500, waited: 20.0, ..USUAL };
        assert_eq!([1, 2, 99].map(|rounds| after(rounds, &costly)), [900, 810, 500]);
        let cheap = Round { hits: 500, waited: 2.0, ..USUAL };
        assert_eq!([1, 99].map(|rounds| after(rounds, &cheap)), [1100, 8000]);
        assert_eq!(after(1, &USUAL), 1100);
        assert_eq!(
            after(99, &Round { hits: 500, waited: 8.0, ..USUAL }),
            SIZE,
            "between the thresholds nothing changes"
        );
        assert_eq!(
            after(99, &Round { is_short: false, ..USUAL }),
            SIZE,
            "a size that suffices does not grow"
        );
    }

    #[test]
    fn without_times_each_miss_counts() {
        assert_eq!(after(1, &Round { hits: 500, waited: 0.0, ..USUAL }), 900);
        assert_eq!(after(1, &Round { hits: 2000, waited: 0.0, ..USUAL }), 1100);
    }

    #[test]
    fn preemptions_make_it_smaller_whatever_is_hit() {
        assert_eq!(after(1, &Round { preemptions: 1, ..USUAL }), 900);
    }

    #[test]
    fn a_server_that_starts_again_and_prompts_of_others_decide_nothing() {
        let mut correction = Correction::default();
        let report = |queries| CacheReport { capacity: SIZE, queries, ..CacheReport::default() };
        correction.report(&report(50_000), 4, 0.0);
        correction.expect(2 * SIZE);
        correction.report(&report(10), 4, 1.0);
        assert_eq!(correction.size(SIZE), SIZE);
        correction.report(&report(10 + 9 * SIZE), 4, 2.0);
        assert_eq!(correction.size(SIZE), SIZE, "most prompts were those of others");
    }
}

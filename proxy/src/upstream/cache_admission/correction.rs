//! Corrects the size of the KV caches by what their misses cost.
//!
//! The forecast of lengths may be wrong, other clients may use the servers, and a server may cache less than it has blocks.
//! All of them lead to misses: prompt tokens that an earlier call of the trial left in the cache, and that the server
//! computes again. Misses cost much where servers are busy with prompts, and nothing where they wait for slow tools. So the
//! open trials may need more or less than the caches hold, by one factor for all servers.
//!
//! With more open trials, the throughput grows as far as the servers have time left, and falls as far as they compute more
//! tokens per trial. `u` is the share of time in which servers compute prompts, and `e` the relative growth of computed
//! tokens for a relative growth of open trials. The factor rises where `1 - u` exceeds `u * e`, and falls in the opposite
//! case. In simulations `e` depends on the share of computed tokens that are computed again (`s`): it is about 3 for small
//! shares and falls to 0 at 0.8, because a cache from which everything is evicted can not become worse.

use super::report::Progress;

/// The factor before the first review, and its bounds. Trials end at different times, and the least recently used ones are
/// those that wait for slow tools, so more fit than the forecast promises.
const FIRST: f64 = 1.75;
const LEAST: f64 = 0.5;
const MOST: f64 = 8.0;
/// The largest relative change of a review.
const STEP: f64 = 0.15;
/// The factor stays while gain and loss differ by less than this, so that it does not oscillate.
const TOLERANCE: f64 = 0.15;
/// The growth `e` of computed tokens: its largest value, its slope, and the share at which it is 0.
const MOST_GROWTH: f64 = 3.0;
const GROWTH_SLOPE: f64 = 7.0;
const NO_GROWTH: f64 = 0.8;
/// The share of calls with a preemption above which the factor falls. A preemption costs as much as a miss of a whole
/// prompt.
const MOST_PREEMPTED: f64 = 0.1;
/// The relative growth of the price of a token per review. It forgets an exceptionally low price.
const PRICE_GROWTH: f64 = 1.002;

/// The factor, and the figures since it was last reviewed.
#[derive(Debug)]
pub(super) struct Correction {
    factor: f64,
    since: Figures,
    /// The seconds that a server needs to compute a token of a prompt. It is the smallest ratio of the waiting time to the
    /// computed tokens so far, because the waiting time includes queues.
    price: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// The sum over all servers.
    progress: Progress,
    /// The prompt tokens that should have been hits.
    expected: u64,
    calls: u64,
    /// Whether a trial waits to be admitted.
    is_short: bool,
}

impl Default for Correction {
    fn default() -> Self {
        Self { factor: FIRST, since: Figures::default(), price: None }
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

    /// Adds the progress of a server.
    pub(super) fn add(&mut self, progress: Progress) {
        self.since.progress += progress;
    }

    /// Reviews the factor once as many tokens were expected as all caches have. The last change has taken effect by then.
    pub(super) fn review(&mut self, capacity: u64) {
        if self.since.expected >= capacity {
            let figures = std::mem::take(&mut self.since);
            self.factor = (self.factor * self.change(&figures)).clamp(LEAST, MOST);
        }
    }

    /// Returns the change of the factor.
    fn change(&mut self, figures: &Figures) -> f64 {
        let Figures { progress, expected, calls, is_short } = *figures;
        if progress.preemptions as f64 > calls as f64 * MOST_PREEMPTED {
            return (-STEP).exp();
        }
        // If most prompts continue nothing that is known, the figures are those of other clients. Without waiting times,
        // nothing shows what a miss costs.
        if expected < progress.queries / 2 || progress.waited <= 0.0 || progress.seconds <= 0.0 {
            return 1.0;
        }
        let computed = progress.queries.saturating_sub(progress.hits).max(1);
        let again = expected.saturating_sub(progress.hits).min(computed) as f64 / computed as f64;
        let computed = computed as f64;
        let known = self.price.map_or(f64::INFINITY, |price| price * PRICE_GROWTH);
        let price = known.min(progress.waited / computed);
        self.price = Some(price);
        let busy = (price * computed / progress.seconds).min(1.0);
        let growth = (GROWTH_SLOPE * (NO_GROWTH - again)).clamp(0.0, MOST_GROWTH);
        match 1.0 - busy - busy * growth {
            gain if gain > TOLERANCE && is_short => (STEP * gain).exp(),
            gain if gain < -TOLERANCE => (STEP * gain.max(-1.0)).exp(),
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1000;

    /// A round of 2,000 prompt tokens, all of them continuations, in ten seconds of one server.
    #[derive(Clone, Copy)]
    struct Round {
        hits: u64,
        /// The seconds until first tokens.
        waited: f64,
        is_short: bool,
        preemptions: u64,
    }

    const USUAL: Round = Round { hits: 2000, waited: 2.0, is_short: true, preemptions: 0 };

    fn played(correction: &mut Correction, round: Round) -> u64 {
        correction.expect(2 * SIZE);
        if round.is_short {
            correction.was_short();
        }
        let Round { hits, waited, preemptions, .. } = round;
        correction.add(Progress { queries: 2 * SIZE, hits, preemptions, waited, seconds: 10.0 });
        correction.review(SIZE);
        correction.size(SIZE)
    }

    /// Returns the size after this many such rounds.
    fn after(rounds: u32, round: Round) -> u64 {
        let mut correction = Correction::default();
        (0..rounds).map(|_| played(&mut correction, round)).last().unwrap()
    }

    fn first() -> u64 {
        Correction::default().size(SIZE)
    }

    #[test]
    fn it_rises_where_servers_have_time_and_falls_where_they_compute_prompts_again_all_the_time() {
        let mut correction = Correction::default();
        // Half of the tokens are computed again. That takes a second, at a millisecond per token.
        let idle = Round { hits: 1000, waited: 1.0, ..USUAL };
        let before = played(&mut correction, idle);
        assert!(before > first(), "{before}");
        // Ten times as many tokens keep the server busy.
        correction.expect(9 * SIZE);
        correction.add(Progress { queries: 18 * SIZE, hits: 9 * SIZE, waited: 99.0, ..Progress::default() });
        let after = played(&mut correction, idle);
        assert!(after < before, "{after}");
    }

    #[test]
    fn it_stays_within_its_bounds() {
        assert_eq!(after(999, Round { waited: 0.001, ..USUAL }), (MOST * SIZE as f64) as u64);
        assert_eq!(after(999, Round { preemptions: 1, ..USUAL }), (LEAST * SIZE as f64) as u64);
    }

    #[test]
    fn it_does_not_rise_while_every_trial_is_admitted() {
        assert_eq!(after(9, Round { is_short: false, waited: 0.1, ..USUAL }), first());
    }

    #[test]
    fn preemptions_make_it_smaller_whatever_is_hit() {
        assert!(after(1, Round { preemptions: 1, ..USUAL }) < first());
    }

    #[test]
    fn without_times_and_with_the_prompts_of_others_it_stays() {
        assert_eq!(after(9, Round { hits: 0, waited: 0.0, ..USUAL }), first());
        let mut correction = Correction::default();
        correction.expect(2 * SIZE);
        correction.was_short();
        correction.add(Progress { queries: 9 * SIZE, waited: 0.1, seconds: 10.0, ..Progress::default() });
        correction.review(SIZE);
        assert_eq!(correction.size(SIZE), first());
    }
}

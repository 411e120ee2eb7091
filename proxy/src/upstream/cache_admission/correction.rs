//! Corrects the size of the KV caches by what their misses cost.
//!
//! The forecast of lengths may be wrong, other clients may use the servers, and a server may cache less than it has blocks.
//! All of them lead to misses: prompt tokens that an earlier call of the trial left in the cache, and that the server
//! computes again. Misses cost much where servers are busy with prompts, and nothing where they wait for slow tools. So the
//! open trials may need more or less than the caches hold, by one factor for all servers.
//!
//! A review measures how the trials use the servers, and moves the factor towards the one with the largest predicted
//! [`throughput`](Load::throughput).

use super::report::Progress;
use super::throughput::{Load, crowding_at};

/// The factor before the first review, and its bounds. Trials end at different times, and the least recently used ones are
/// those that wait for slow tools, so more fit than the forecast promises.
const FIRST: f64 = 1.5;
const LEAST: f64 = 0.5;
const MOST: f64 = 8.0;
/// The largest relative changes of a review.
const RISE: f64 = 0.4;
const FALL: f64 = 0.15;
/// The reports of each server between two reviews, and before the first one. Means of less time are noise, and the change of a
/// review needs time to have an effect. At the beginning of a job all trials are young, and their cache has few misses yet.
const REPORTS: u64 = 10;
const FIRST_REPORTS: u64 = 30;
/// The ratio of two factors that are compared.
const CANDIDATES: f64 = 1.05;
/// A larger factor must have this many times the throughput of a smaller one. Fewer open trials compute fewer tokens.
const WORTH: f64 = 1.02;
/// A cache holds the conversations of its open trials up to about this forecast, relative to its size. Young trials have no
/// misses yet, so the forecast also shows how crowded the cache will be, up to the second figure.
const FITTING: f64 = 1.3;
const MOST_FORECAST: f64 = 1.3;
/// The least number of open trials per server for which figures are computed.
const LEAST_TRIALS: f64 = 0.1;
/// The share of calls with a preemption above which the factor falls. A preemption costs as much as a miss of a whole
/// prompt.
const MOST_PREEMPTED: f64 = 0.1;
/// The relative growth of the smallest figures per review, which forgets exceptionally small ones.
const FORGETTING: f64 = 1.002;

/// The factor, and the figures since it was last reviewed.
#[derive(Debug)]
pub(super) struct Correction {
    factor: f64,
    is_reviewed: bool,
    since: Figures,
    /// The seconds that a server needs to compute a token of a prompt.
    price: Smallest,
    /// The seconds of a call on a server without other prompts.
    decode: Smallest,
}

/// The smallest value so far. Times include those of waiting, so the smallest one is the best estimate.
#[derive(Clone, Copy, Debug, Default)]
struct Smallest(Option<f64>);

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// The sum over all servers.
    progress: Progress,
    /// The sum of the open trials over all reports.
    open: u64,
    /// The prompt tokens that should have been hits.
    expected: u64,
    calls: u64,
    /// The sum of their times.
    call_seconds: f64,
    /// Whether a trial waits to be admitted.
    is_short: bool,
}

/// The caches of all servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caches {
    /// The number of servers whose cache is known.
    pub(super) servers: usize,
    /// The sum of their sizes, in tokens.
    pub(super) capacity: u64,
    /// The sum of the forecasts of their open trials, in tokens.
    pub(super) forecast: u64,
}

impl Default for Correction {
    fn default() -> Self {
        let (price, decode) = (Smallest::default(), Smallest::default());
        Self { factor: FIRST, is_reviewed: false, since: Figures::default(), price, decode }
    }
}

impl Correction {
    /// Returns the corrected size of a cache, in tokens.
    pub(super) fn size(&self, capacity: u64) -> u64 {
        (capacity as f64 * self.factor) as u64
    }

    /// Counts a call that took this time, with the prompt tokens that should be hits.
    pub(super) fn expect(&mut self, tokens: u64, seconds: f64) {
        self.since.expected = self.since.expected.saturating_add(tokens);
        self.since.calls = self.since.calls.saturating_add(1);
        self.since.call_seconds += seconds.max(0.0);
    }

    /// Allows the factor to rise, because a trial was not admitted. Otherwise the factor would rise without any effect, and
    /// would be too large later.
    pub(super) fn was_short(&mut self) {
        self.since.is_short = true;
    }

    /// Adds the progress of a server with this many open trials.
    pub(super) fn add(&mut self, progress: Progress, open: usize) {
        self.since.progress += progress;
        self.since.open = self.since.open.saturating_add(open as u64);
    }

    /// Whether the factor is due for a review: half as many tokens were expected as all caches have, and these servers
    /// have reported often enough.
    pub(super) fn is_due(&self, capacity: u64, servers: usize) -> bool {
        let Figures { progress, expected, .. } = self.since;
        let reports = if self.is_reviewed { REPORTS } else { FIRST_REPORTS };
        expected >= (capacity / 2).max(1) && progress.reports >= reports.saturating_mul(servers as u64)
    }

    /// Reviews the factor.
    pub(super) fn review(&mut self, caches: Caches) {
        let figures = std::mem::take(&mut self.since);
        self.is_reviewed = true;
        self.factor = (self.factor * self.change(&figures, caches)).clamp(LEAST, MOST);
    }

    /// Returns the change of the factor.
    fn change(&mut self, figures: &Figures, caches: Caches) -> f64 {
        let Figures { progress, expected, calls, .. } = *figures;
        if progress.preemptions as f64 > calls as f64 * MOST_PREEMPTED {
            return (-FALL).exp();
        }
        // If most prompts continue nothing that is known, the figures are those of other clients. Without waiting times,
        // nothing shows what a miss costs.
        if expected < progress.queries / 2 || progress.waited <= 0.0 || progress.seconds <= 0.0 {
            return 1.0;
        }
        // The limit applies to trials that are admitted. Those that are open determine what the servers do.
        let used = (caches.forecast as f64 / caches.capacity.max(1) as f64).max(0.1);
        let load = self.load(figures, caches, used);
        let change = (best_factor(self.factor, used, &load) / self.factor).ln();
        if change > 0.0 && !figures.is_short { 1.0 } else { change.clamp(-FALL, RISE).exp() }
    }

    /// Measures the load. `used` is the forecast relative to the size of the caches.
    fn load(&mut self, figures: &Figures, caches: Caches, used: f64) -> Load {
        let Figures { progress, open, expected, calls, .. } = *figures;
        let (calls, reports) = (calls.max(1) as f64, progress.reports.max(1) as f64);
        let computed = progress.queries.saturating_sub(progress.hits).max(1) as f64;
        // The waiting time includes queues, and no server computes for longer than it runs.
        let price = self.price.of(progress.waited.min(progress.seconds) / computed);
        let rate = calls / progress.seconds;
        let trials = (open as f64 / reports).max(LEAST_TRIALS);
        let call_time = figures.call_seconds / calls;
        // By Little's law, the number of calls in flight is their rate times their time.
        let in_flight = (rate * call_time).min(trials);
        let decode = self.decode.of(call_time);
        let missed = 1.0 - progress.hits.min(expected) as f64 / expected.max(1) as f64;
        let capacity = caches.capacity as f64 / caches.servers.max(1) as f64;
        // A conversation grows from its present length to the forecast one, so the mean of both counts.
        let prompt = progress.queries as f64 / calls;
        let in_cache = f64::midpoint(prompt, used * capacity / trials);
        Load {
            trials,
            crowding: crowding_at(missed).max((used / FITTING).min(MOST_FORECAST)),
            pause: (trials - in_flight) / rate,
            decode,
            new: progress.queries.saturating_sub(expected) as f64 / calls,
            repeated: expected as f64 / calls,
            in_cache,
            price,
            capacity,
        }
    }
}

/// Returns the factor with the largest throughput. `used` is the factor that the present load corresponds to.
fn best_factor(present: f64, used: f64, load: &Load) -> f64 {
    let throughput = |factor: f64| load.throughput(factor / used);
    let candidates = (0..).map(|step| LEAST * CANDIDATES.powi(step)).take_while(|factor| *factor <= MOST);
    let best = candidates.fold((throughput(present), present), |best, factor| {
        let rate = throughput(factor);
        if rate > best.0 * WORTH { (rate, factor) } else { best }
    });
    best.1
}

impl Smallest {
    /// Takes a value into account, and returns the smallest one.
    fn of(&mut self, value: f64) -> f64 {
        let smallest = self.0.map_or(value, |known| (known * FORGETTING).min(value));
        self.0 = Some(smallest);
        smallest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: u64 = 10_000;

    /// A minute of a server with ten open trials whose forecast is the limit. Its prompts have 1,000 tokens, 900 of them from
    /// an earlier call.
    #[derive(Clone, Copy)]
    struct Minute {
        calls: u64,
        call_seconds: f64,
        /// The share of the tokens of earlier calls that is evicted.
        missed: f64,
        /// The seconds until first tokens, of all calls.
        waited: f64,
        is_short: bool,
        preemptions: u64,
    }

    /// Tools take 29 seconds, and a call takes one second.
    const SLOW_TOOLS: Minute =
        Minute { calls: 20, call_seconds: 1.0, missed: 0.0, waited: 2.0, is_short: true, preemptions: 0 };
    /// Tools take no time, and two thirds of all prompts are computed, which takes the whole minute.
    const THRASHING: Minute =
        Minute { calls: 120, call_seconds: 5.0, missed: 0.63, waited: 300.0, is_short: true, preemptions: 0 };

    fn played(correction: &mut Correction, minute: Minute) -> u64 {
        let Minute { calls, call_seconds, missed, waited, is_short, preemptions } = minute;
        (0..calls).for_each(|_| correction.expect(900, call_seconds));
        if is_short {
            correction.was_short();
        }
        let hits = (calls as f64 * 900.0 * (1.0 - missed)) as u64;
        let queries = calls * 1000;
        assert!(!correction.is_due(SIZE, 1), "no report");
        let reports = FIRST_REPORTS;
        correction.add(
            Progress { queries, hits, preemptions, waited, seconds: 60.0, reports },
            10 * reports as usize,
        );
        assert!(correction.is_due(SIZE, 1));
        correction.review(Caches { servers: 1, capacity: SIZE, forecast: correction.size(SIZE) });
        correction.size(SIZE)
    }

    /// Returns the size after this many such minutes.
    fn after(minutes: u32, minute: Minute) -> u64 {
        let mut correction = Correction::default();
        (0..minutes).map(|_| played(&mut correction, minute)).last().unwrap()
    }

    fn first() -> u64 {
        Correction::default().size(SIZE)
    }

    #[test]
    fn it_rises_where_tools_are_slow() {
        assert!(after(1, SLOW_TOOLS) > first());
        assert!(after(20, SLOW_TOOLS) > 2 * first());
    }

    #[test]
    fn it_falls_where_a_busy_server_computes_prompts_again() {
        let mut correction = Correction::default();
        // Before, the server has little to do, so the time of a call without others is known.
        let before = played(&mut correction, Minute { is_short: false, ..SLOW_TOOLS });
        assert_eq!(before, first());
        let after = played(&mut correction, THRASHING);
        assert!(after < before, "{after}");
    }

    #[test]
    fn it_stays_within_its_bounds() {
        let free = Minute { waited: 0.001, ..SLOW_TOOLS };
        let most = after(99, free);
        assert!(most > 6 * SIZE && most <= MOST as u64 * SIZE, "{most}");
        assert_eq!(after(99, Minute { preemptions: 9, ..SLOW_TOOLS }), SIZE / 2);
    }

    #[test]
    fn it_does_not_rise_while_every_trial_is_admitted() {
        assert_eq!(after(9, Minute { is_short: false, ..SLOW_TOOLS }), first());
    }

    #[test]
    fn preemptions_make_it_smaller_whatever_is_hit() {
        assert!(after(1, Minute { preemptions: 3, ..SLOW_TOOLS }) < first());
    }

    #[test]
    fn without_times_and_with_the_prompts_of_others_it_stays() {
        assert_eq!(after(9, Minute { waited: 0.0, ..SLOW_TOOLS }), first());
        let mut correction = Correction::default();
        correction.expect(SIZE, 1.0);
        correction.was_short();
        let others = Progress { queries: 9 * SIZE, waited: 0.1, seconds: 10.0, ..Progress::default() };
        correction.add(others, 10);
        correction.review(Caches { servers: 1, capacity: SIZE, forecast: SIZE });
        assert_eq!(correction.size(SIZE), first());
    }

    proptest! {
        #[test]
        fn no_figures_lead_out_of_its_bounds(
            calls in 0_u64..100, call_seconds in -1.0_f64..1e9, expected in any::<u64>(), queries in any::<u64>(),
            hits in any::<u64>(), waited in -1.0_f64..1e12, seconds in 0.0_f64..1e12, open in 0_usize..10_000,
            capacity in any::<u64>(), forecast in any::<u64>(), servers in 0_usize..100,
        ) {
            let mut correction = Correction::default();
            for _ in 0..5 {
                (0..calls).for_each(|_| correction.expect(expected, call_seconds));
                correction.was_short();
                let progress = Progress { queries, hits, preemptions: 0, waited, seconds, reports: REPORTS };
                correction.add(progress, open);
                correction.review(Caches { servers, capacity, forecast });
                prop_assert!((LEAST..=MOST).contains(&correction.factor), "{}", correction.factor);
            }
        }
    }
}

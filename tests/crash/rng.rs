//! Random choices that a seed repeats.

use std::ops::Range;
use std::time::{Duration, SystemTime};

/// Returns the number of rounds and the seed of a run: those of `CRASH_ROUNDS` and `CRASH_SEED`, or the usual number and a new
/// seed. Prints both, so that a run can be repeated.
pub(crate) fn rounds_and_seed(usual: u64) -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let rounds = number("CRASH_ROUNDS").unwrap_or(usual);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = number("CRASH_SEED").unwrap_or_else(|| u64::from(now.subsec_nanos()));
    println!("{rounds} rounds with CRASH_SEED={seed}");
    (rounds, seed)
}

/// A generator of random numbers (SplitMix64). Each agent and each answer has its own, so its choices do not depend on
/// how they interleave.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// Returns the generator of the agent or answer with this number, in a run with this seed.
    pub(crate) fn of(seed: u64, number: u64) -> Self {
        let mut mixed = Self(seed ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03));
        mixed.next();
        mixed
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in the range, which must not be empty.
    pub(crate) fn among(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// Returns true with this probability in per cent.
    pub(crate) fn per_cent(&mut self, times: u64) -> bool {
        self.among(0..100) < times
    }

    /// Returns a number between 0 and 1, both excluded.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Returns a random time below this one.
    pub(crate) fn below(&mut self, time: Duration) -> Duration {
        time.mul_f64(self.unit())
    }
}

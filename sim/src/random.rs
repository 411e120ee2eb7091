//! SplitMix64: the random numbers of the simulator, equal for equal seeds on every machine and in every release.

/// A stream of random numbers. Unsuitable for secrets.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Creates a stream of `seed`. Different values of `stream` give independent streams.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut outer = Self(stream);
        Self(seed ^ outer.next())
    }

    /// Returns the next 64 bits.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0. The bias of the multiplication is negligible here.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Returns true in one of `n` cases.
    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Returns a number above 0 and up to 1.
    pub(super) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns a hash of token ids (FNV-1a over the ids), so that one seed gives different prompts different answers.
pub(super) fn fingerprint(ids: &[u32]) -> u64 {
    ids.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, id| (hash ^ u64::from(*id)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_numbers_of_splitmix64() {
        let mut random = Random(1234567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn stays_in_bounds_and_reaches_them() {
        let mut random = Random::new(1, 2);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[random.below(5)] = true;
            let unit = random.unit();
            assert!(unit > 0.0 && unit <= 1.0);
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(random.below(0), 0);
    }
}

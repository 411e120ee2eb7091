//! A hash that shows whether two texts are equal without storing the texts. Its cost is one pass over the text.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::LazyLock;

use twox_hash::XxHash3_128;

/// The seed of the hash, which is random per process. No attacker can search for texts that collide. Fingerprints are
/// never stored on disk.
static KEY: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));

/// A 128-bit hash of a text or of a sequence of texts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(u128);

impl Fingerprint {
    /// The fingerprint of an empty sequence.
    pub(super) const NONE: Self = Self(0);

    /// Returns the fingerprint of a text.
    pub(super) fn of(text: &str) -> Self {
        Self(XxHash3_128::oneshot_with_seed(*KEY, text.as_bytes()))
    }

    /// Returns the fingerprint of this sequence followed by `next`.
    pub(super) fn then(self, next: Self) -> Self {
        let mut both = [0; 32];
        let (first, second) = both.split_at_mut(16);
        first.copy_from_slice(&self.0.to_le_bytes());
        second.copy_from_slice(&next.0.to_le_bytes());
        Self(XxHash3_128::oneshot_with_seed(*KEY, &both))
    }
}

/// Builds the hashes of maps whose keys contain a fingerprint.
pub(super) type ByFingerprint = BuildHasherDefault<FingerprintHasher>;

/// Takes the bits of a fingerprint as its hash. They are random, and no attacker can predict them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FingerprintHasher(u64);

impl Hasher for FingerprintHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, number: u32) {
        // The factor spreads small numbers over all bits: it is 2^64 divided by the golden ratio.
        self.0 = (self.0.rotate_left(5) ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u128(&mut self, fingerprint: u128) {
        self.0 ^= fingerprint as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 as u32)
    }
}

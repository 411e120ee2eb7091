//! A hash that shows whether two texts are equal without storing the texts. Its cost is one pass over the text.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
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

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 as u32)
    }
}

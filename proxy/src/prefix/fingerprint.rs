//! Says that two texts are equal without keeping either, at the cost of reading them.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use twox_hash::XxHash3_128;

/// Keyed anew in each process: nobody can look for texts that collide, and none is ever kept on disk.
static KEY: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));

/// 128 bits of a text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(u128);

impl Fingerprint {
    /// Of nothing yet: what a sequence begins with.
    pub(super) const NONE: Self = Self(0);

    /// Of a text.
    pub(super) fn of(text: &str) -> Self {
        Self(XxHash3_128::oneshot_with_seed(*KEY, text.as_bytes()))
    }

    /// Of what this one is of, followed by what `next` is of.
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

//! The shards of a cluster, and the rules that place groups, trials and keys on them.
//!
//! The number of shards of a cluster never changes, so each rule is the hash of a name modulo that number.

use sha2::{Digest, Sha256};

use super::trial_key::TrialKey;

/// The number of shards of a cluster, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardCount(u32);

/// A shard of a cluster. A proxy without a cluster is the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) number: u32,
    pub(crate) of: ShardCount,
}

impl ShardCount {
    pub(crate) const ONE: Self = Self(1);

    /// Returns the count, at least one.
    pub(crate) fn new(count: u32) -> Self {
        Self(count.max(1))
    }

    pub(crate) fn get(self) -> u32 {
        self.0
    }

    /// The shard of a group: its trials are on one shard, so that one node decides about attempts and closing.
    pub(crate) fn of_group(self, group_id: &str) -> u32 {
        self.of_hash(Sha256::digest(group_id).into())
    }

    /// The shard of a trial without a group.
    pub(crate) fn of_trial(self, trial_id: &str) -> u32 {
        self.of_hash(Sha256::digest(trial_id).into())
    }

    /// The shard of the trial with this key. A shard gives its trials keys for which this is so.
    pub(crate) fn of_key(self, key: &TrialKey) -> u32 {
        self.of_hash(key.hash().bytes())
    }

    fn of_hash(self, hash: [u8; 32]) -> u32 {
        let [first, second, third, fourth, ..] = hash;
        u32::from_be_bytes([first, second, third, fourth]) % self.0
    }
}

impl Shard {
    /// The shard of a proxy without a cluster.
    pub(crate) const ONLY: Self = Self { number: 0, of: ShardCount::ONE };

    /// Generates a key of a trial on this shard.
    ///
    /// The key does not name its shard, because an agent could learn from it that there is a proxy. So keys are generated
    /// until one belongs to this shard: as many as there are shards on average, at about a microsecond each.
    pub(crate) fn key(self) -> Result<TrialKey, getrandom::Error> {
        loop {
            let key = TrialKey::generate()?;
            if self.of.of_key(&key) == self.number {
                return Ok(key);
            }
        }
    }

    /// Derives the key of a trial on this shard from a secret, always the same one.
    pub(crate) fn key_of(self, secret: &[u8]) -> TrialKey {
        let mut number = 0;
        loop {
            let key = TrialKey::derived(secret, number);
            if self.of.of_key(&key) == self.number {
                return key;
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_generates_keys_that_lead_to_it() {
        let of = ShardCount::new(3);
        for number in 0..3 {
            let key = Shard { number, of }.key().unwrap();
            assert_eq!(of.of_key(&key), number);
            let derived = Shard { number, of }.key_of(b"a secret");
            assert_eq!((of.of_key(&derived), &derived), (number, &Shard { number, of }.key_of(b"a secret")));
            assert!(TrialKey::parse(derived.reveal()).is_some());
        }
        assert_eq!(ShardCount::ONE.of_key(&Shard::ONLY.key().unwrap()), 0);
    }

    #[test]
    fn groups_spread_over_the_shards_and_stay_where_they_are() {
        let of = ShardCount::new(4);
        let mut counts = [0; 4];
        for group in 0..1000 {
            counts[of.of_group(&format!("group-{group}")) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (200..300).contains(count)), "{counts:?}");
        // A change of the rule would lose the groups of existing clusters.
        assert_eq!(["a", "b", "c", "task-17"].map(|group| of.of_group(group)), [2, 2, 3, 0]);
    }
}

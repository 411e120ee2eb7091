//! Which node of a cluster answered in each epoch of each shard, as the answers themselves name it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use reqwest::header::HeaderMap;

/// The header in which an answer names its node.
const HOLDER: &str = "x-rolltap-holder";

/// The nodes that answered.
#[derive(Debug, Default)]
pub(crate) struct Holders(Mutex<BTreeMap<Lease, String>>);

/// A time in which one node at most may answer the keys of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lease {
    shard: u32,
    epoch: u64,
}

impl Holders {
    /// Records the node of an answer, and returns its lease.
    ///
    /// # Errors
    /// The answer names no node, or another node answered under the same lease.
    pub(crate) fn record(&self, answer: &HeaderMap) -> Result<Lease, String> {
        let name = answer.get(HOLDER).and_then(|name| name.to_str().ok()).unwrap_or_default();
        let (lease, node) = parsed(name).ok_or_else(|| format!("{HOLDER} of an answer is {name:?}"))?;
        let mut nodes = self.0.lock().unwrap();
        let first = nodes.entry(lease).or_insert_with(|| node.to_owned());
        match first == node {
            true => Ok(lease),
            false => Err(format!("{first} and {node} both answered in {lease:?}")),
        }
    }

    /// The number of leases under which a node answered.
    pub(crate) fn leases(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Lease {
    /// Whether an answer under this lease may follow one under the other. A key has one shard, and its epochs only grow.
    pub(crate) fn may_follow(self, earlier: Self) -> bool {
        self.shard == earlier.shard && self.epoch >= earlier.epoch
    }
}

/// Reads `shard=0; epoch=3; node=UUID`.
fn parsed(name: &str) -> Option<(Lease, &str)> {
    let mut parts = name.split("; ");
    let mut part = |prefix: &str| parts.next()?.strip_prefix(prefix);
    let (shard, epoch) = (part("shard=")?.parse().ok()?, part("epoch=")?.parse().ok()?);
    Some((Lease { shard, epoch }, part("node=")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(name: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(HOLDER.parse().unwrap(), name.parse().unwrap())])
    }

    #[test]
    fn two_nodes_in_one_epoch_are_a_breach() {
        let holders = Holders::default();
        let first = holders.record(&answer("shard=1; epoch=3; node=a")).unwrap();
        assert_eq!(holders.record(&answer("shard=1; epoch=3; node=a")), Ok(first));
        holders.record(&answer("shard=0; epoch=3; node=b")).unwrap();
        let later = holders.record(&answer("shard=1; epoch=4; node=b")).unwrap();
        assert!(later.may_follow(first) && !first.may_follow(later));
        let breach = holders.record(&answer("shard=1; epoch=3; node=b")).unwrap_err();
        assert!(breach.starts_with("a and b both answered"), "{breach}");
        holders.record(&HeaderMap::new()).unwrap_err();
        assert_eq!(holders.leases(), 3);
    }
}

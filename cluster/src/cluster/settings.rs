//! How a node reaches its cluster.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use async_nats::ServerAddr;

/// How a node reaches the NATS servers of its cluster.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// NATS servers of one NATS cluster, as `nats://[USER:PASSWORD@]HOST[:PORT]` or `tls://…`. The first user is that of all.
    pub servers: Vec<ServerAddr>,
    /// The name of the rolltap cluster. Clusters with different names share nothing.
    pub name: ClusterName,
    /// The number of NATS servers that have a copy of each record.
    pub replicas: usize,
    /// What this process is in the cluster.
    pub member: Member,
    /// A file with NATS credentials (`.creds`), or with the seed of an NKey.
    pub credentials: Option<PathBuf>,
    /// Certificates of authorities that may have signed the certificates of the servers, besides those of the system.
    pub ca_file: Option<PathBuf>,
}

/// What a process is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// It offers or runs trials, and holds no shard.
    Client,
    /// It waits for a shard and answers for it.
    Node {
        /// The number of shards, which the first node decides. `None` takes that of the cluster, and one for a new cluster.
        shards: Option<u32>,
    },
}

/// The name of a cluster: 1 to 32 letters, digits, `-` and `_`, which is a part of names in NATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterName(String);

/// A text that is no name of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of a cluster has 1 to 32 letters, digits, '-' and '_', which {0:?} has not")]
pub struct InvalidClusterName(String);

impl Default for ClusterName {
    fn default() -> Self {
        Self("rolltap".to_owned())
    }
}

impl FromStr for ClusterName {
    type Err = InvalidClusterName;

    fn from_str(name: &str) -> Result<Self, InvalidClusterName> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if (1..=32).contains(&name.len()) && name.bytes().all(is_valid) {
            Ok(Self(name.to_owned()))
        } else {
            Err(InvalidClusterName(name.to_owned()))
        }
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_part_of_the_names_of_nats() {
        for good in ["rolltap", "a", "A-1_b"] {
            assert_eq!(good.parse::<ClusterName>().unwrap().to_string(), good);
        }
        for bad in ["", "a.b", "a b", "ä", "*", &"x".repeat(33)] {
            assert!(bad.parse::<ClusterName>().is_err(), "{bad}");
        }
    }
}

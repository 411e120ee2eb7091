//! Settings of a proxy that is a node of a cluster.

use std::time::Duration;

use clap::Args;
use rolltap_cluster::{ClusterSettings, Member, SHARDS};
use rolltap_proxy::NodeSettings;
use rolltap_proxy::store::ArchiveSettings;
use serde::Deserialize;

use crate::cluster_options::{ClusterOptions, alone};

/// The time until a segment is closed, unless the user gives another one.
const SEGMENT_SECONDS: u64 = 300;

/// Settings that are a flag, a variable, and a key of the file.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[command(next_help_heading = "Cluster")]
#[serde(default)]
pub(crate) struct NodeOptions {
    /// Close a segment for upload after this time, or at 64 MiB. [default: 300]
    #[arg(long, env = "ROLLTAP_CLUSTER_SEGMENT_SECONDS", value_name = "SECONDS")]
    pub(crate) cluster_segment_seconds: Option<u64>,
    /// Let other nodes reach this one by this name or address of its host. [default: the addresses of --listen and --admin]
    ///
    /// It is needed where --listen or --admin is 0.0.0.0 or [::].
    #[arg(long, env = "ROLLTAP_NODE_HOST", value_name = "HOST")]
    pub(crate) node_host: Option<String>,
    /// Divide the trials among this many shards, each on a node of its own. [default: 1]
    ///
    /// The first node decides, and the number cannot change. A node answers for one shard, so start at least one node more than
    /// there are shards. A node of 16 cores carries about 4,000 concurrent trials.
    #[arg(long, env = "ROLLTAP_CLUSTER_SHARDS", value_name = "NUMBER")]
    pub(crate) cluster_shards: Option<u32>,
}

impl NodeOptions {
    /// Returns the settings of a node. `None` without a cluster.
    ///
    /// # Errors
    /// Fails on a wrong value, and on a setting that has no effect without another one.
    pub(crate) fn node(self, cluster: &ClusterOptions) -> anyhow::Result<Option<NodeSettings>> {
        let Some(nats) = cluster.nats()? else {
            return match (&self.node_host, self.cluster_shards) {
                (Some(_), _) => alone("node_host"),
                (None, Some(_)) => alone("cluster_shards"),
                (None, None) => Ok(None),
            };
        };
        if let Some(shards) = self.cluster_shards.filter(|shards| !SHARDS.contains(shards)) {
            anyhow::bail!(
                "cluster_shards is {shards}, and a cluster has {} to {} shards",
                SHARDS.start(),
                SHARDS.end()
            );
        }
        let nats = ClusterSettings { member: Member::Node { shards: self.cluster_shards }, ..nats };
        let seconds = self.cluster_segment_seconds;
        let archive = match cluster.objects()? {
            Some(storage) => {
                let segment_age = Duration::from_secs(seconds.unwrap_or(SEGMENT_SECONDS).max(1));
                Some(ArchiveSettings { storage, segment_age })
            }
            None if seconds.is_some() => {
                anyhow::bail!(
                    "cluster_segment_seconds is given without cluster_objects, where closed segments go"
                );
            }
            None => None,
        };
        Ok(Some(NodeSettings { cluster: nats, archive, host: self.node_host }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_a_node_needs_a_cluster() {
        let options = || NodeOptions { node_host: Some("a".to_owned()), ..NodeOptions::default() };
        let lonely = options().node(&ClusterOptions::default()).unwrap_err();
        assert!(lonely.to_string().starts_with("node_host is given without cluster"));
        let cluster =
            ClusterOptions { cluster: vec!["nats://127.0.0.1".to_owned()], ..ClusterOptions::default() };
        assert_eq!(options().node(&cluster).unwrap().unwrap().host.as_deref(), Some("a"));
        let many = NodeOptions { cluster_shards: Some(65), ..NodeOptions::default() };
        assert!(many.node(&cluster).unwrap_err().to_string().contains("1 to 64"));
        let without = NodeOptions { cluster_segment_seconds: Some(1), ..NodeOptions::default() };
        assert!(without.node(&cluster).unwrap_err().to_string().contains("cluster_objects"));
    }
}

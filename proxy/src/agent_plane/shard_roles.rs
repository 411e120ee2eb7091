//! The part that a node has for each shard of its cluster.

use std::sync::Arc;

use axum::Router;
use http::uri::Authority;
use rolltap_cluster::lease::LeaseClock;
use tokio::sync::watch;

use super::AgentPlane;
use crate::common::shard::ShardCount;

/// The part that a node has for a shard.
#[derive(Clone, Debug)]
pub(crate) enum NodeRole {
    /// This node holds the shard, and answers with these planes.
    Holder {
        /// The agent plane.
        agents: Arc<AgentPlane>,
        /// The admin plane.
        admin: Router,
        /// Shows whether the shard is still that of this node.
        lease: LeaseClock,
    },
    /// This node has the lease of the shard, and reads the captures. Requests wait for it.
    Restoring,
    /// Another node holds the shard, or none at present.
    Standby(Option<HolderAddress>),
}

/// Where the node that holds a shard is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HolderAddress {
    pub(crate) agents: Authority,
    pub(crate) admin: Authority,
}

/// The part that this node has for each shard, in the order of their numbers. At least one.
#[derive(Clone, Debug)]
pub(crate) struct ShardRoles(Arc<[watch::Receiver<NodeRole>]>);

impl ShardRoles {
    /// Returns the roles of this many shards, and a sender for each. Nothing is known about the shards yet.
    pub(crate) fn new(count: ShardCount) -> (Vec<watch::Sender<NodeRole>>, Self) {
        let unknown = |_| watch::channel(NodeRole::Standby(None));
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..count.get()).map(unknown).unzip();
        (senders, Self(receivers.into()))
    }

    pub(crate) fn count(&self) -> ShardCount {
        ShardCount::new(self.0.len() as u32)
    }

    /// Returns the role for a shard. `None` for a number that no shard has.
    pub(crate) fn of(&self, shard: u32) -> Option<&watch::Receiver<NodeRole>> {
        self.0.get(shard as usize)
    }

    /// Returns the shard that this node holds, or else the first one.
    pub(crate) fn own_or_first(&self) -> u32 {
        let is_held = |role: &watch::Receiver<NodeRole>| matches!(*role.borrow(), NodeRole::Holder { .. });
        self.0.iter().position(is_held).unwrap_or_default() as u32
    }
}

//! The part that a node has for each shard of its cluster.

use std::sync::Arc;

use axum::Router;
use http::uri::Authority;
use http::{HeaderName, HeaderValue, Response};
use rolltap_cluster::lease::LeaseClock;
use tokio::sync::watch;
use uuid::Uuid;

use super::AgentPlane;
use crate::common::shard::ShardCount;

/// Names the node that answered an agent, and its lease.
const HOLDER: HeaderName = HeaderName::from_static("x-rolltap-holder");

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
        /// The lease, as agents see it.
        name: HolderName,
    },
    /// This node has the lease of the shard, and reads the captures. Requests wait for it.
    Restoring,
    /// Another node holds the shard, or none at present.
    Standby(Option<HolderAddress>),
}

/// A node and its lease, as the answers to agents name them: `shard=0; epoch=3; node=UUID`. No two nodes have the same shard and
/// epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HolderName(HeaderValue);

impl HolderName {
    pub(crate) fn new(shard: u32, epoch: u64, node: Uuid) -> Self {
        let name = format!("shard={shard}; epoch={epoch}; node={node}");
        // Numbers and a UUID are valid in a header.
        Self(HeaderValue::try_from(name).unwrap_or(HeaderValue::from_static("")))
    }

    /// Adds the name to an answer.
    pub(crate) fn sign<B>(&self, mut answer: Response<B>) -> Response<B> {
        answer.headers_mut().insert(HOLDER, self.0.clone());
        answer
    }
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

//! A node of a cluster: waits for a shard and forwards requests meanwhile, and becomes the holder of that shard.
//!
//! A node holds one shard at most. A node that loses its shard ends with an error, and does not become a standby again. Its threads and tasks may hold any
//! part of the old state, and the end of the process removes all of it. The service manager starts the node again.

mod admin_door;
mod holding;
mod leases;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rolltap_cluster::lease::Node;
use rolltap_cluster::{Cluster, ClusterError, ClusterSettings};
use tokio::sync::watch;
use uuid::Uuid;

use self::holding::{HeldShard, HoldingNode};
use self::leases::{Leases, Observer};
use super::core::Foundation;
use super::sockets::{Serving, Sockets};
use super::{ShutdownError, StartError, check};
use crate::agent_plane::public_url::PublicUrl;
use crate::agent_plane::responder::{ClusterDoor, Responder};
use crate::agent_plane::shard_roles::{HolderName, NodeRole, ShardRoles};
use crate::common::shard::{Shard, ShardCount};
use crate::settings::Settings;
use crate::store::{ArchiveSettings, RestoreError, StoreError};

/// The settings that a node has beyond those of a proxy.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// How the node reaches NATS.
    pub cluster: ClusterSettings,
    /// Where closed segments of captures go. `None` keeps all captures in NATS.
    pub archive: Option<ArchiveSettings>,
    /// The host at which other nodes reach the planes of this node, with the ports that they listen on. `None` means the
    /// addresses that they listen on.
    pub host: Option<String>,
}

/// Why a node did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// NATS cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The proxy cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The captures cannot be restored.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// Other nodes could not reach this one.
    #[error(
        "other nodes cannot reach {0}, at which the {1} plane listens: give --node-host with the name or address of this host"
    )]
    Unreachable(SocketAddr, &'static str),
    /// Nodes forward requests without TLS.
    #[error(
        "a node of a cluster has no TLS of its own: terminate TLS in front of the nodes, without --tls-cert and --tls-key"
    )]
    Tls,
    /// The store cannot write any more, or the shard was taken over.
    #[error(transparent)]
    Ended(#[from] StoreError),
    /// The node did not shut down cleanly.
    #[error(transparent)]
    Shutdown(#[from] ShutdownError),
}

/// What a node does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeStatus {
    /// It waits for a shard, and forwards requests to the nodes at these URLs. Each shard has an entry, which is `None` if no
    /// node holds the shard.
    Standby(Vec<Option<String>>),
    /// It has the lease, and reads the captures.
    Restoring {
        /// The number of the shard.
        shard: u32,
        /// The epoch of the lease.
        epoch: u64,
    },
    /// It holds the shard and answers.
    Holder {
        /// The number of the shard.
        shard: u32,
        /// The epoch of the lease.
        epoch: u64,
        /// The identity of this process.
        node: Uuid,
        /// The number of segments of captures.
        segments: usize,
        /// Their size.
        bytes: u64,
        /// The time between the lease and the first answer.
        took: Duration,
    },
}

/// Where the shards are kept.
#[derive(Debug)]
struct ShardPlace {
    cluster: Cluster,
    archive: Option<ArchiveSettings>,
}

impl ShardPlace {
    fn shards(&self) -> ShardCount {
        ShardCount::new(self.cluster.shards())
    }
}

/// A node that answers on its sockets.
#[derive(Debug)]
pub struct RunningNode {
    settings: Settings,
    foundation: Foundation,
    place: ShardPlace,
    me: Node,
    roles: Vec<watch::Sender<NodeRole>>,
    serving: Serving,
    default_url: PublicUrl,
    agent_addrs: Vec<SocketAddr>,
    admin_addr: SocketAddr,
}

/// Connects to the cluster, and serves both planes as a standby. The future is boxed for the reason given at
/// [`super::start`].
///
/// # Errors
/// Fails if NATS or the addresses cannot be used.
pub fn start_node(
    settings: Settings,
    node: NodeSettings,
) -> BoxFuture<'static, Result<RunningNode, NodeError>> {
    Box::pin(start(settings, node))
}

async fn start(settings: Settings, node: NodeSettings) -> Result<RunningNode, NodeError> {
    check(&settings)?;
    if settings.agent_tls.is_some() || settings.admin_tls.is_some() {
        return Err(NodeError::Tls);
    }
    let foundation = Foundation::lay(&settings)?;
    let cluster = rolltap_cluster::connect(&node.cluster).await?;
    let sockets = Sockets::bind(&settings, &foundation.metrics).await?;
    let (agent_addrs, admin_addr) = (sockets.agent_addrs.clone(), sockets.admin_addr);
    let first = agent_addrs.first().copied().unwrap_or(admin_addr);
    let me = Node {
        id: Uuid::now_v7(),
        agent_url: url_of(first, node.host.as_deref(), "agent")?,
        admin_url: url_of(admin_addr, node.host.as_deref(), "admin")?,
    };
    let place = ShardPlace { cluster, archive: node.archive };
    let (senders, roles) = ShardRoles::new(place.shards());
    let default_url = sockets.default_url();
    let admin = admin_door::router(ClusterDoor::new(roles.clone()));
    let door = ClusterDoor::new(roles);
    let (draining, stopped) = (foundation.draining.clone(), foundation.stopped.clone());
    let serving = sockets.serve(Responder::Cluster(door), admin, &foundation.metrics, draining, stopped);
    Ok(RunningNode {
        settings,
        foundation,
        place,
        me,
        roles: senders,
        serving,
        default_url,
        agent_addrs,
        admin_addr,
    })
}

/// Returns the URL at which other nodes reach an address.
fn url_of(address: SocketAddr, host: Option<&str>, plane: &'static str) -> Result<String, NodeError> {
    match host {
        Some(host) => Ok(format!("http://{host}:{}", address.port())),
        None if address.ip().is_unspecified() => Err(NodeError::Unreachable(address, plane)),
        None => Ok(format!("http://{address}")),
    }
}

impl RunningNode {
    /// The addresses of the agent plane, in the order of [`Settings::listen`].
    pub fn agent_addrs(&self) -> &[SocketAddr] {
        &self.agent_addrs
    }

    /// The address of the admin plane.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Runs the node until `stop`, and then drains it for up to `grace`. `observe` gets each change of the status.
    ///
    /// # Errors
    /// Fails if the node cannot become the holder, and if another node takes the shard from it. The process should end
    /// then.
    pub fn run(
        self,
        stop: impl Future<Output = ()> + Send + 'static,
        grace: Duration,
        observe: impl Fn(NodeStatus) + Send + Sync + 'static,
    ) -> BoxFuture<'static, Result<(), NodeError>> {
        Box::pin(self.run_all(stop, grace, Arc::new(observe)))
    }

    async fn run_all(
        self,
        stop: impl Future<Output = ()> + Send,
        grace: Duration,
        observe: Observer,
    ) -> Result<(), NodeError> {
        let mut stop = pin!(stop);
        // The leases of the other shards are followed until the node ends.
        let mut leases = Leases::follow(&self.place, &self.me, &self.roles, &observe);
        let (shard, role, lease) = tokio::select! {
            Some(acquired) = leases.acquired() => acquired,
            () = &mut stop => return Ok(self.serving.drain(grace).await?),
        };
        // The previous holder may be paused or unreachable. Requests wait for this node instead.
        role.send_replace(NodeRole::Restoring);
        let shard = Shard { number: shard, of: self.place.shards() };
        let holding = HoldingNode::start(
            self.settings,
            self.foundation,
            &self.place,
            HeldShard { shard, lease: &lease, node: self.me.id },
            self.default_url,
            &observe,
        );
        // Boxed, because the future is large.
        let held = tokio::select! {
            held = Box::pin(holding) => held?,
            () = &mut stop => {
                lease.release().await;
                return Ok(self.serving.drain(grace).await?);
            }
        };
        role.send_replace(NodeRole::Holder {
            agents: Arc::clone(&held.core.agent_plane),
            admin: held.core.admin_router.clone(),
            lease: lease.clock(),
            name: HolderName::new(shard.number, lease.epoch(), self.me.id),
        });
        observe(held.status());
        tokio::select! {
            () = &mut stop => {}
            error = held.core.store.ended() => return Err(error.into()),
        }
        let calls = self.serving.drain(grace).await;
        held.finish().await?;
        lease.release().await;
        Ok(calls?)
    }
}

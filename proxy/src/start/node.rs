//! A node of a cluster: waits for the shard and forwards requests meanwhile, and becomes its holder.
//!
//! A node that loses the shard ends with an error, and does not become a standby again. Its threads and tasks may hold any
//! part of the old state, and the end of the process removes all of it. The service manager starts the node again.

mod admin_door;
mod holding;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::uri::{Authority, Uri};
use rolltap_cluster::lease::{self, HeldLease, LeaseView, Node};
use rolltap_cluster::{Cluster, ClusterError, ClusterSettings};
use tokio::sync::watch;
use uuid::Uuid;

use self::holding::HoldingNode;
use super::core::Foundation;
use super::sockets::{Serving, Sockets};
use super::{ShutdownError, StartError, check};
use crate::agent_plane::public_url::PublicUrl;
use crate::agent_plane::responder::{ClusterDoor, HolderAddress, NodeRole, Responder};
use crate::settings::Settings;
use crate::store::{ArchiveSettings, RestoreError, StoreError};

/// The only shard of a cluster.
const SHARD: u32 = 0;

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
    /// It waits for the shard, and forwards requests to the node at this URL, if there is one.
    Standby(Option<String>),
    /// It has the lease, and reads the captures.
    Restoring {
        /// The epoch of the lease.
        epoch: u64,
    },
    /// It holds the shard and answers.
    Holder {
        /// The epoch of the lease.
        epoch: u64,
        /// The number of segments of captures.
        segments: usize,
        /// Their size.
        bytes: u64,
        /// The time between the lease and the first answer.
        took: Duration,
    },
}

/// Where the shard is kept.
#[derive(Debug)]
struct ShardPlace {
    cluster: Cluster,
    archive: Option<ArchiveSettings>,
}

/// A node that answers on its sockets.
#[derive(Debug)]
pub struct RunningNode {
    settings: Settings,
    foundation: Foundation,
    place: ShardPlace,
    me: Node,
    role: watch::Sender<NodeRole>,
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
    let (role, roles) = watch::channel(NodeRole::Standby(None));
    let default_url = sockets.default_url();
    let admin = admin_door::router(ClusterDoor::new(roles.clone()));
    let door = ClusterDoor::new(roles);
    let (draining, stopped) = (foundation.draining.clone(), foundation.stopped.clone());
    let serving = sockets.serve(Responder::Cluster(door), admin, &foundation.metrics, draining, stopped);
    let place = ShardPlace { cluster, archive: node.archive };
    Ok(RunningNode { settings, foundation, place, me, role, serving, default_url, agent_addrs, admin_addr })
}

/// Returns the URL at which other nodes reach an address.
fn url_of(address: SocketAddr, host: Option<&str>, plane: &'static str) -> Result<String, NodeError> {
    match host {
        Some(host) => Ok(format!("http://{host}:{}", address.port())),
        None if address.ip().is_unspecified() => Err(NodeError::Unreachable(address, plane)),
        None => Ok(format!("http://{address}")),
    }
}

/// Returns the authority of a URL of another node. `None` if it has none, which no node writes.
fn authority(url: &str) -> Option<Authority> {
    url.parse::<Uri>().ok()?.into_parts().authority
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
        Box::pin(self.run_all(stop, grace, observe))
    }

    async fn run_all(
        self,
        stop: impl Future<Output = ()> + Send,
        grace: Duration,
        observe: impl Fn(NodeStatus) + Sync,
    ) -> Result<(), NodeError> {
        let mut stop = pin!(stop);
        let lease = tokio::select! {
            lease = self.wait_for_lease(&observe) => lease,
            () = &mut stop => return Ok(self.serving.drain(grace).await?),
        };
        // The previous holder may be paused or unreachable. Requests wait for this node instead.
        self.role.send_replace(NodeRole::Standby(None));
        let holding = HoldingNode::start(
            self.settings,
            self.foundation,
            &self.place,
            &lease,
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
        self.role.send_replace(NodeRole::Holder {
            agents: Arc::clone(&held.core.agent_plane),
            admin: held.core.admin_router.clone(),
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

    /// Waits until this node has the lease of the shard, and knows the holder meanwhile.
    async fn wait_for_lease(&self, observe: &(impl Fn(NodeStatus) + Sync)) -> HeldLease {
        let (view, mut views) = watch::channel(LeaseView::Unknown);
        let follow = async {
            // The sender lives as long as the lease is waited for.
            while views.changed().await.is_ok() {
                let seen = views.borrow_and_update().clone();
                // A node that NATS does not answer keeps the holder that it knows.
                let LeaseView::Seen(record) = seen else { continue };
                let holder = record.and_then(|record| record.holder);
                let address = holder.as_ref().and_then(|holder| {
                    Some(HolderAddress {
                        agents: authority(&holder.agent_url)?,
                        admin: authority(&holder.admin_url)?,
                    })
                });
                self.role.send_replace(NodeRole::Standby(address));
                observe(NodeStatus::Standby(holder.map(|holder| holder.agent_url)));
            }
            std::future::pending().await
        };
        tokio::select! {
            lease = lease::acquire(&self.place.cluster, SHARD, &self.me, &view) => lease,
            () = follow => std::future::pending().await,
        }
    }
}

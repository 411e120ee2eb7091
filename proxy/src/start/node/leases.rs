//! The leases of all shards, as one node sees them: it takes one of them, and knows the holders of the others.

use std::sync::{Arc, Mutex, PoisonError};

use http::uri::{Authority, Uri};
use rolltap_cluster::Cluster;
use rolltap_cluster::lease::{self, Candidacy, HeldLease, LeaseView, Node};
use rolltap_cluster::objects::ObjectStorage;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::{NodeStatus, ShardPlace};
use crate::agent_plane::shard_roles::{HolderAddress, NodeRole};

/// Gets each change of the status of a node.
pub(super) type Observer = Arc<dyn Fn(NodeStatus) + Send + Sync>;

/// A lease that this node has taken: the number of its shard, and the place for the role of this node.
pub(super) type Acquired = (u32, watch::Sender<NodeRole>, HeldLease);

/// Follows the lease of each shard until it is dropped.
#[derive(Debug)]
pub(super) struct Leases {
    acquired: mpsc::Receiver<Acquired>,
    _following: JoinSet<()>,
}

/// The URLs of the holders of all shards, shown as long as this node holds none.
struct Holders {
    urls: Mutex<Vec<Option<String>>>,
    observe: Observer,
}

impl Leases {
    /// Keeps the role of this node for each shard: the address of its holder.
    pub(super) fn follow(
        place: &ShardPlace,
        me: &Node,
        roles: &[watch::Sender<NodeRole>],
        observe: &Observer,
    ) -> Self {
        let candidacy = Candidacy::default();
        let urls = Mutex::new(vec![None; roles.len()]);
        let holders = Arc::new(Holders { urls, observe: Arc::clone(observe) });
        let (sender, acquired) = mpsc::channel(1);
        let mut following = JoinSet::new();
        for (shard, role) in (0..).zip(roles) {
            let follower = Follower {
                cluster: place.cluster.clone(),
                storage: place.archive.as_ref().map(|archive| archive.storage.clone()),
                me: me.clone(),
                shard,
                role: role.clone(),
                holders: Arc::clone(&holders),
            };
            let (candidacy, sender) = (candidacy.clone(), sender.clone());
            following.spawn(async move {
                let lease = follower.wait_for_lease(&candidacy).await;
                // The node has ended if nobody receives the lease, which then expires.
                let _ = sender.send((follower.shard, follower.role, lease)).await;
            });
        }
        Self { acquired, _following: following }
    }

    /// Waits until this node has taken a lease. It takes one and no more.
    pub(super) async fn acquired(&mut self) -> Option<Acquired> {
        self.acquired.recv().await
    }
}

/// Follows the lease of one shard.
struct Follower {
    cluster: Cluster,
    storage: Option<ObjectStorage>,
    me: Node,
    shard: u32,
    role: watch::Sender<NodeRole>,
    holders: Arc<Holders>,
}

impl Follower {
    /// Waits until this node has the lease, and keeps the address of the holder meanwhile.
    async fn wait_for_lease(&self, candidacy: &Candidacy) -> HeldLease {
        let (view, mut views) = watch::channel(LeaseView::Unknown);
        let follow = async {
            // The sender lives as long as the lease is waited for.
            while views.changed().await.is_ok() {
                let seen = views.borrow_and_update().clone();
                // A node that NATS does not answer keeps the holder that it knows.
                let LeaseView::Seen(record) = seen else { continue };
                let holder = record.and_then(|record| record.holder);
                self.role.send_replace(NodeRole::Standby(holder.as_ref().and_then(address_of)));
                self.holders.changed(self.shard, holder.map(|holder| holder.agent_url));
            }
            std::future::pending().await
        };
        let storage = self.storage.as_ref();
        tokio::select! {
            lease = lease::acquire(&self.cluster, self.shard, &self.me, candidacy, storage, &view) => {
                self.holders.is_not_standby();
                lease
            }
            () = follow => std::future::pending().await,
        }
    }
}

impl Holders {
    fn changed(&self, shard: u32, url: Option<String>) {
        let mut urls = self.urls.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = urls.get_mut(shard as usize) else { return };
        *known = url;
        (self.observe)(NodeStatus::Standby(urls.clone()));
    }

    /// Ends the status of a standby. The node holds a shard from now on.
    fn is_not_standby(&self) {
        self.urls.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn address_of(holder: &Node) -> Option<HolderAddress> {
    Some(HolderAddress { agents: authority(&holder.agent_url)?, admin: authority(&holder.admin_url)? })
}

/// Returns the authority of a URL of another node. `None` if it has none, which no node writes.
fn authority(url: &str) -> Option<Authority> {
    url.parse::<Uri>().ok()?.into_parts().authority
}

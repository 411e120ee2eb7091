//! The proxy of a node that holds a shard.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rolltap_cluster::lease::{HeldLease, LeaseState};
use rolltap_cluster::versions::VersionNumbers;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::leases::Observer;
use super::{NodeError, NodeStatus, ShardPlace};
use crate::agent_plane::public_url::PublicUrl;
use crate::common::shard::{Shard, ShardCount};
use crate::settings::Settings;
use crate::start::StartError;
use crate::start::core::{Core, Foundation, Predecessor, recover};
use crate::store::{Health, Part, RestoreError, Restored, ShardEpoch, StoreError};

/// The pause before the captures are read again, after NATS failed.
const AGAIN: Duration = Duration::from_millis(500);
/// How long shutdown waits for the upload of the last segment.
const UPLOAD_GRACE: Duration = Duration::from_secs(10);

/// A shard, and the lease that this node has of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldShard<'a> {
    pub(super) shard: Shard,
    pub(super) lease: &'a HeldLease,
    /// The identity of this process.
    pub(super) node: Uuid,
}

/// The proxy of a node that holds a shard.
pub(super) struct HoldingNode {
    pub(super) core: Core,
    status: NodeStatus,
    /// Uploads closed segments, until the store has ended. `None` without object storage.
    uploads: Option<JoinHandle<()>>,
}

impl HoldingNode {
    /// Restores the captures of the shard, and starts the proxy on them.
    pub(super) async fn start(
        settings: Settings,
        foundation: Foundation,
        place: &ShardPlace,
        held: HeldShard<'_>,
        default_url: PublicUrl,
        observe: &Observer,
    ) -> Result<Self, NodeError> {
        let HeldShard { shard, lease, node } = held;
        let (began, epoch) = (Instant::now(), lease.epoch());
        observe(NodeStatus::Restoring { shard: shard.number, epoch });
        let data_dir = data_dir_of(&settings.data_dir, shard);
        // Boxed, because the future is large.
        let restored = Box::pin(restored(place, held, &data_dir)).await?;
        let (segments, bytes) = (restored.segments, restored.bytes);
        let (opened, uploads) = restored.open(&data_dir, settings.store).map_err(StartError::from)?;
        tokio::spawn(follow_lease(lease.state(), opened.store.health()));
        let is_one_of_several = shard.of != ShardCount::ONE;
        let numbers = is_one_of_several.then(|| VersionNumbers::new(place.cluster.clone()));
        let recovered = recover(opened, Predecessor::Holder, numbers).await.map_err(StartError::from)?;
        let core = Core::start(settings, shard, recovered, foundation, default_url)?;
        let status =
            NodeStatus::Holder { shard: shard.number, epoch, node, segments, bytes, took: began.elapsed() };
        Ok(Self { core, status, uploads })
    }

    pub(super) fn status(&self) -> NodeStatus {
        self.status.clone()
    }

    /// Flushes the store, and waits for the upload of the last segment. Every call has ended.
    pub(super) async fn finish(self) -> Result<(), StoreError> {
        self.core.finish().await?;
        if let Some(uploads) = self.uploads
            && tokio::time::timeout(UPLOAD_GRACE, uploads).await.is_err()
        {
            tracing::warn!("the last captures are not in object storage yet; the next holder uploads them");
        }
        Ok(())
    }
}

/// Returns the directory of a shard. A node may hold another shard after a restart, so each shard has its own, except the only
/// shard of a cluster.
fn data_dir_of(data_dir: &Path, shard: Shard) -> PathBuf {
    if shard.of == ShardCount::ONE {
        return data_dir.to_owned();
    }
    data_dir.join(format!("shard-{}", shard.number))
}

/// Reads the captures of the shard. Repeats that while NATS fails and the lease is not lost.
async fn restored(
    place: &ShardPlace,
    held: HeldShard<'_>,
    data_dir: &Path,
) -> Result<Restored, RestoreError> {
    let state = held.lease.state();
    let of = ShardEpoch { shard: held.shard.number, epoch: held.lease.epoch() };
    loop {
        match Restored::restore(&place.cluster, of, place.archive.as_ref(), data_dir).await {
            Err(error) if error.is_transient() && !matches!(*state.borrow(), LeaseState::Lost(_)) => {
                tracing::warn!(%error, "the captures cannot be restored yet; it is tried again");
                tokio::time::sleep(AGAIN).await;
            }
            result => return result,
        }
    }
}

/// Shows the state of the lease in the health of the store, until either ends.
async fn follow_lease(mut state: watch::Receiver<LeaseState>, health: Health) {
    loop {
        let current = state.borrow_and_update().clone();
        match current {
            LeaseState::Held => health.is_well(Part::Lease),
            LeaseState::Unconfirmed => health.fails(Part::Lease, StoreError::LeaseUnconfirmed),
            LeaseState::Lost(record) => {
                let by =
                    record.holder.map_or_else(|| "its entry is gone".to_owned(), |holder| holder.agent_url);
                return health.ends(StoreError::TakenOver(format!("{by}, in epoch {}", record.epoch)));
            }
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}

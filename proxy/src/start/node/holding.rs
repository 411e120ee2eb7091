//! The proxy of a node that holds the shard.

use std::path::Path;
use std::time::{Duration, Instant};

use rolltap_cluster::lease::{HeldLease, LeaseState};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{NodeError, NodeStatus, SHARD, ShardPlace};
use crate::agent_plane::public_url::PublicUrl;
use crate::settings::Settings;
use crate::start::StartError;
use crate::start::core::{Core, Foundation, recover};
use crate::store::{Health, Part, RestoreError, Restored, ShardEpoch, StoreError};

/// The pause before the captures are read again, after NATS failed.
const AGAIN: Duration = Duration::from_millis(500);
/// How long shutdown waits for the upload of the last segment.
const UPLOAD_GRACE: Duration = Duration::from_secs(10);

/// The proxy of a node that holds the shard.
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
        lease: &HeldLease,
        default_url: PublicUrl,
        observe: &(impl Fn(NodeStatus) + Sync),
    ) -> Result<Self, NodeError> {
        let (began, epoch) = (Instant::now(), lease.epoch());
        observe(NodeStatus::Restoring { epoch });
        let restored = restored(place, lease, &settings.data_dir).await?;
        let (segments, bytes) = (restored.segments, restored.bytes);
        let (opened, uploads) =
            restored.open(&settings.data_dir, settings.store).map_err(StartError::from)?;
        tokio::spawn(follow_lease(lease.state(), opened.store.health()));
        let recovered = recover(opened).await.map_err(StartError::from)?;
        let core = Core::start(settings, recovered, foundation, default_url)?;
        let status = NodeStatus::Holder { epoch, segments, bytes, took: began.elapsed() };
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

/// Reads the captures of the shard. Repeats that while NATS fails and the lease is not lost.
async fn restored(place: &ShardPlace, lease: &HeldLease, data_dir: &Path) -> Result<Restored, RestoreError> {
    let state = lease.state();
    let of = ShardEpoch { shard: SHARD, epoch: lease.epoch() };
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

//! All environments of a server, up to a maximum, and the reasons why earlier ones are gone.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::error::GymError;
use super::slot::{Removed, Slot};

/// The number of removed environments whose reason is remembered.
const REMEMBERED: usize = 4096;
/// The interval of lease checks.
const LEASE_CHECK: Duration = Duration::from_millis(250);

/// All environments of a server.
pub(super) struct Registry {
    most: usize,
    state: Mutex<RegistryState>,
}

#[derive(Default)]
struct RegistryState {
    slots: HashMap<String, Arc<Slot>>,
    /// The removed environments with the reason, the latest last.
    gone: VecDeque<(String, GymError)>,
    is_stopping: bool,
}

impl Registry {
    pub(super) fn new(most: usize) -> Self {
        Self { most, state: Mutex::default() }
    }

    /// Fails if the maximum number of environments exists, or if the server is stopping.
    pub(super) fn must_have_room(&self) -> Result<(), GymError> {
        self.state().must_have_room(self.most)
    }

    pub(super) fn add(&self, slot: Arc<Slot>) -> Result<(), GymError> {
        // Checked again, because other calls may have added environments since.
        let mut state = self.state();
        state.must_have_room(self.most)?;
        state.slots.insert(slot.facts.id.clone(), slot);
        Ok(())
    }

    pub(super) fn get(&self, id: &str) -> Result<Arc<Slot>, GymError> {
        let state = self.state();
        if let Some(slot) = state.slots.get(id) {
            return Ok(Arc::clone(slot));
        }
        let gone = state.gone.iter().find(|(gone, _)| gone == id).map(|(_, why)| why.clone());
        Err(gone.unwrap_or_else(|| GymError::UnknownEnv(id.to_owned())))
    }

    /// Returns all environments sorted by id, which is the order of their creation.
    pub(super) fn all(&self) -> Vec<Arc<Slot>> {
        let mut slots: Vec<_> = self.state().slots.values().map(Arc::clone).collect();
        slots.sort_by(|one, other| one.facts.id.cmp(&other.facts.id));
        slots
    }

    /// Removes an environment. It counts towards the maximum until it is removed.
    pub(super) async fn remove(&self, slot: &Slot, why: Removed) {
        slot.remove(why).await;
        let mut state = self.state();
        // Two removals of the same environment may end here, and only the first one records its reason.
        if state.slots.remove(&slot.facts.id).is_some() {
            state.gone.push_back((slot.facts.id.clone(), why.error(&slot.lease)));
            let surplus = state.gone.len().saturating_sub(REMEMBERED);
            state.gone.drain(..surplus);
        }
    }

    /// Removes environments whose leases have ended, until `stopped` is cancelled.
    pub(super) async fn watch_leases(self: Arc<Self>, stopped: CancellationToken) {
        let mut ticks = tokio::time::interval(LEASE_CHECK);
        while stopped.run_until_cancelled(ticks.tick()).await.is_some() {
            for slot in self.all().into_iter().filter(|slot| slot.is_forgotten()) {
                let registry = Arc::clone(&self);
                tokio::spawn(async move {
                    tracing::info!(env = slot.facts.id, "removing an environment whose lease expired");
                    registry.remove(&slot, Removed::Expired).await;
                });
            }
        }
    }

    /// Rejects further environments, and removes all that exist.
    pub(super) async fn close(&self) {
        self.state().is_stopping = true;
        let slots = self.all();
        join_all(slots.iter().map(|slot| self.remove(slot, Removed::Stopping))).await;
    }

    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryState {
    fn must_have_room(&self, most: usize) -> Result<(), GymError> {
        match self.slots.len() {
            _ if self.is_stopping => Err(GymError::Stopping),
            count if count >= most => Err(GymError::TooMany(most)),
            _ => Ok(()),
        }
    }
}

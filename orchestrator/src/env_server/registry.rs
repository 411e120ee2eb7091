//! All environments of a server: as many as there may be at once, and what is said of those that are gone.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::error::GymError;
use super::slot::{Removed, Slot};

/// Environments that are gone and whose callers are still told why.
const REMEMBERED: usize = 4096;
/// How often leases are looked at.
const LEASE_CHECK: Duration = Duration::from_millis(250);

/// All environments of a server.
pub(super) struct Registry {
    most: usize,
    state: Mutex<RegistryState>,
}

#[derive(Default)]
struct RegistryState {
    slots: HashMap<String, Arc<Slot>>,
    /// The latest last.
    gone: VecDeque<(String, GymError)>,
    is_stopping: bool,
}

impl Registry {
    pub(super) fn new(most: usize) -> Self {
        Self { most, state: Mutex::default() }
    }

    /// Whether there is room for another now.
    pub(super) fn must_have_room(&self) -> Result<(), GymError> {
        self.state().must_have_room(self.most)
    }

    pub(super) fn add(&self, slot: Arc<Slot>) -> Result<(), GymError> {
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

    /// In order of their ids, which is that of their making.
    pub(super) fn all(&self) -> Vec<Arc<Slot>> {
        let mut slots: Vec<_> = self.state().slots.values().map(Arc::clone).collect();
        slots.sort_by(|one, other| one.facts.id.cmp(&other.facts.id));
        slots
    }

    /// Removes an environment, which counts until it is gone.
    pub(super) async fn remove(&self, slot: &Slot, why: Removed) {
        slot.remove(why).await;
        let mut state = self.state();
        if state.slots.remove(&slot.facts.id).is_some() {
            state.gone.push_back((slot.facts.id.clone(), why.error(&slot.lease)));
            let surplus = state.gone.len().saturating_sub(REMEMBERED);
            state.gone.drain(..surplus);
        }
    }

    /// Removes environments whose leases are over, until it is stopped.
    pub(super) async fn watch_leases(self: Arc<Self>, stopped: CancellationToken) {
        let mut ticks = tokio::time::interval(LEASE_CHECK);
        while stopped.run_until_cancelled(ticks.tick()).await.is_some() {
            for slot in self.all().into_iter().filter(|slot| slot.is_forgotten()) {
                let registry = Arc::clone(&self);
                tokio::spawn(async move {
                    tracing::info!(env = slot.facts.id, "removing an environment that nobody calls");
                    registry.remove(&slot, Removed::Expired).await;
                });
            }
        }
    }

    /// Takes no further environment, and removes those that there are.
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

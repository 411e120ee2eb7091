//! What can be switched while a simulator runs, so that tests see a server fall ill, get well and change its weights.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The switches as they stand.
#[derive(Debug, Default)]
pub(super) struct Switches(Mutex<SwitchState>);

#[derive(Debug, Default)]
struct SwitchState {
    is_ill: bool,
    is_refusing: bool,
    weights: Option<String>,
}

impl Switches {
    /// `/health` answers 503, as vLLM's does once its engine is dead.
    pub(super) fn is_ill(&self) -> bool {
        self.lock().is_ill
    }

    /// Chat requests are answered 503.
    pub(super) fn is_refusing(&self) -> bool {
        self.lock().is_refusing
    }

    /// What `/weight_info` tells; without, there is no such path.
    pub(super) fn weights(&self) -> Option<String> {
        self.lock().weights.clone()
    }

    pub(super) fn set_ill(&self, is_ill: bool) {
        self.lock().is_ill = is_ill;
    }

    pub(super) fn set_refusing(&self, is_refusing: bool) {
        self.lock().is_refusing = is_refusing;
    }

    pub(super) fn set_weights(&self, weights: Option<&str>) {
        self.lock().weights = weights.map(str::to_owned);
    }

    fn lock(&self) -> MutexGuard<'_, SwitchState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

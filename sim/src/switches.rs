//! The switches of a running simulator, with which tests make a server fail, recover and change its weights.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The current switches.
#[derive(Debug, Default)]
pub(super) struct Switches(Mutex<SwitchState>);

#[derive(Debug, Default)]
struct SwitchState {
    is_ill: bool,
    is_refusing: bool,
    weights: Option<String>,
}

impl Switches {
    /// Returns whether `/health` answers 503, as vLLM's does once its engine is dead.
    pub(super) fn is_ill(&self) -> bool {
        self.lock().is_ill
    }

    /// Returns whether chat requests are answered 503.
    pub(super) fn is_refusing(&self) -> bool {
        self.lock().is_refusing
    }

    /// Returns the version in `/weight_info`. If `None`, the path does not exist.
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

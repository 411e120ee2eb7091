//! Environments that nobody has to remember to remove.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::environment::Environment;
use crate::failure::chain;

/// How long removing an environment may take before it is left to the end of the server.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// An environment that is removed once this is dropped, however that comes: also where work in it is broken off or panics.
pub(super) struct EnvironmentGuard {
    // Dropped before the next field, so that whoever removes it is the last to hold it.
    environment: Arc<Environment>,
    _guard: DropGuard,
    left: CancellationToken,
    removed: CancellationToken,
    helpers: TaskTracker,
}

impl EnvironmentGuard {
    /// `removals` knows of those that are under way.
    pub(super) fn new(environment: Environment, removals: &TaskTracker) -> Self {
        let environment = Arc::new(environment);
        let (left, removed) = <(CancellationToken, CancellationToken)>::default();
        let (helpers, is_removed) = (TaskTracker::new(), removed.clone().drop_guard());
        removals.spawn(removal(Arc::clone(&environment), left.clone(), helpers.clone(), is_removed));
        Self { environment, _guard: left.clone().drop_guard(), left, removed, helpers }
    }

    /// Does this with the environment on the side, until it is left at the latest.
    pub(super) fn besides<W>(&self, work: impl FnOnce(Arc<Environment>) -> W)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let work = self.left.clone().run_until_cancelled_owned(work(Arc::clone(&self.environment)));
        self.helpers.spawn(work);
    }

    /// Set once it is removed, or was tried to be.
    pub(super) fn removed(&self) -> CancellationToken {
        self.removed.clone()
    }

    /// Returns once it is removed, or was tried to be.
    pub(super) async fn leave(self) {
        let removed = self.removed();
        drop(self);
        removed.cancelled().await;
    }
}

impl Deref for EnvironmentGuard {
    type Target = Environment;

    fn deref(&self) -> &Environment {
        &self.environment
    }
}

async fn removal(
    environment: Arc<Environment>,
    left: CancellationToken,
    helpers: TaskTracker,
    _removed: DropGuard,
) {
    left.cancelled().await;
    helpers.close();
    helpers.wait().await;
    let Some(environment) = Arc::into_inner(environment) else { return };
    match tokio::time::timeout(STOP_TIMEOUT, environment.stop()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(error = chain(&error), "an environment is not removed"),
        Err(_) => tracing::warn!("an environment is not removed within {STOP_TIMEOUT:?}"),
    }
}

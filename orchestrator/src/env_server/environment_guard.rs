//! Environments that remove themselves.

use std::ops::Deref;
use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::environment::{Environment, STOP_TIMEOUT};
use crate::failure::chain;

/// An environment that is removed when this is dropped, also if work in it is cancelled or panics.
pub(super) struct EnvironmentGuard {
    // Dropped before the next field, so that the removal task holds the last reference.
    environment: Arc<Environment>,
    _guard: DropGuard,
    left: CancellationToken,
    removed: CancellationToken,
    helpers: TaskTracker,
}

impl EnvironmentGuard {
    /// Wraps an environment. `removals` tracks the task that removes it.
    pub(super) fn new(environment: Environment, removals: &TaskTracker) -> Self {
        let environment = Arc::new(environment);
        let (left, removed) = <(CancellationToken, CancellationToken)>::default();
        let (helpers, is_removed) = (TaskTracker::new(), removed.clone().drop_guard());
        removals.spawn(removal(Arc::clone(&environment), left.clone(), helpers.clone(), is_removed));
        Self { environment, _guard: left.clone().drop_guard(), left, removed, helpers }
    }

    /// Runs work with the environment concurrently, until this is dropped at the latest.
    pub(super) fn besides<W>(&self, work: impl FnOnce(Arc<Environment>) -> W)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let work = self.left.clone().run_until_cancelled_owned(work(Arc::clone(&self.environment)));
        self.helpers.spawn(work);
    }

    /// Returns a token that is cancelled once the environment is removed or its removal has failed.
    pub(super) fn removed(&self) -> CancellationToken {
        self.removed.clone()
    }

    /// Drops this and waits until the environment is removed or its removal has failed.
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
    // A helper holds a reference to the environment, so it must end first.
    helpers.wait().await;
    let Some(environment) = Arc::into_inner(environment) else { return };
    match tokio::time::timeout(STOP_TIMEOUT, environment.stop()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(error = chain(&error), "an environment is not removed"),
        Err(_) => tracing::warn!("an environment is not removed within {STOP_TIMEOUT:?}"),
    }
}

//! The hosts of environments: a Docker engine or this host, connected on first use, with a limit on concurrent starts.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OnceCell, Semaphore};
use tokio_util::task::TaskTracker;

use super::environment_guard::EnvironmentGuard;
use super::error::GymError;
use crate::environment::{
    EnvironmentError, EnvironmentKind, Host, JobLabel, TrialLabel, warn_of_missing_sandbox,
};
use crate::failure::{TimeoutPolicy, chain};
use crate::task::Task;

/// The time limit for removing the remaining environments when the server ends.
const LEFTOVERS_TIMEOUT: Duration = Duration::from_secs(60);

/// The hosts of one server.
pub(super) struct Hosts {
    label: JobLabel,
    docker: OnceCell<Arc<Host>>,
    local: OnceCell<Arc<Host>>,
    /// Limits concurrent starts. Builds are not included: the host limits these to two to four at a time.
    starts: Arc<Semaphore>,
    removals: TaskTracker,
    /// The policy that changes no time limit of a task.
    pub(super) timeouts: TimeoutPolicy,
}

impl Hosts {
    pub(super) fn new(label: JobLabel, starts_at_once: usize) -> Self {
        Self {
            label,
            docker: OnceCell::new(),
            local: OnceCell::new(),
            starts: Arc::new(Semaphore::new(starts_at_once)),
            removals: TaskTracker::new(),
            timeouts: TimeoutPolicy::default(),
        }
    }

    /// Returns the host of this kind, and connects on first use.
    pub(super) async fn connect(&self, kind: EnvironmentKind) -> Result<Arc<Host>, EnvironmentError> {
        let cell = if kind == EnvironmentKind::Local { &self.local } else { &self.docker };
        let connect = async {
            warn_of_missing_sandbox(kind);
            Ok(Arc::new(Host::connect(kind, &self.label).await?.for_changing_tasks()))
        };
        cell.get_or_try_init(|| Box::pin(connect)).await.cloned()
    }

    /// Builds the image if necessary, and starts an environment. If this future is dropped, nothing is left behind.
    pub(super) async fn open(
        &self,
        kind: EnvironmentKind,
        task: &Arc<Task>,
        label: &str,
    ) -> Result<EnvironmentGuard, GymError> {
        let limit = self.timeouts.environment_build(task.config.environment.build_timeout_sec);
        let open = Box::pin(self.open_in_time(kind, task, TrialLabel::new(label)));
        match tokio::time::timeout(limit.unwrap_or(Duration::MAX), open).await {
            Ok(opened) => opened,
            Err(_) => {
                let limit = limit.unwrap_or_default().as_secs_f64();
                Err(GymError::EnvironmentFailed(format!("the environment was not up after {limit} s")))
            }
        }
    }

    async fn open_in_time(
        &self,
        kind: EnvironmentKind,
        task: &Arc<Task>,
        label: TrialLabel,
    ) -> Result<EnvironmentGuard, GymError> {
        let failed = |error: EnvironmentError| GymError::environment_failed(&error);
        let host = self.connect(kind).await.map_err(failed)?;
        let prepared = host.prepare(task).await.map_err(failed)?;
        // The semaphore is never closed.
        let place = Arc::clone(&self.starts).acquire_owned().await.ok();
        let (task, removals) = (Arc::clone(task), self.removals.clone());
        // An engine completes a start even if the caller leaves, so a task must wait for it and guard the environment.
        let start = self.removals.spawn(async move {
            let _place = place;
            let environment = Box::pin(host.start(&prepared, &task, &label)).await?;
            Ok(EnvironmentGuard::new(environment, &removals))
        });
        let started = start.await?;
        started.map_err(failed)
    }

    /// Waits for the removals in progress, and removes the remaining environments.
    pub(super) async fn close(self) {
        self.removals.close();
        // After a timeout the hosts are closed all the same, which removes the remaining environments.
        if tokio::time::timeout(LEFTOVERS_TIMEOUT, self.removals.wait()).await.is_err() {
            tracing::warn!("some environments were not removed within {LEFTOVERS_TIMEOUT:?}");
        }
        for host in [self.docker, self.local].into_iter().filter_map(OnceCell::into_inner) {
            let Some(host) = Arc::into_inner(host) else {
                tracing::warn!("an environment is still being started; `rolltap clean` removes what is left");
                continue;
            };
            if let Err(error) = host.close().await {
                tracing::warn!(
                    error = chain(&error),
                    "not everything is removed; `rolltap clean` tries again"
                );
            }
        }
    }
}

//! Where environments are made: an engine or this host, connected to when first asked for, with a bound on starts.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OnceCell, Semaphore};
use tokio_util::task::TaskTracker;

use super::environment_guard::EnvironmentGuard;
use super::error::GymError;
use crate::environment::{EnvironmentError, EnvironmentKind, Host, JobLabel, TrialLabel};
use crate::failure::{TimeoutPolicy, chain};
use crate::task::Task;

/// How long the removal of what is left may take when the server ends.
const LEFTOVERS_TIMEOUT: Duration = Duration::from_secs(60);

/// The hosts of one server.
pub(super) struct Hosts {
    label: JobLabel,
    docker: OnceCell<Arc<Host>>,
    local: OnceCell<Arc<Host>>,
    /// Images are built two to four at a time by the engine's own rule; this is for what is started from them.
    starts: Arc<Semaphore>,
    removals: TaskTracker,
    /// What tasks say of their phases' time, and nothing else.
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

    /// The host of this kind.
    pub(super) async fn connect(&self, kind: EnvironmentKind) -> Result<Arc<Host>, EnvironmentError> {
        let cell = if kind == EnvironmentKind::Local { &self.local } else { &self.docker };
        let connect = async { Ok(Arc::new(Host::connect(kind, &self.label).await?.for_changing_tasks())) };
        cell.get_or_try_init(|| Box::pin(connect)).await.cloned()
    }

    /// Builds what has to be built and starts an environment. Dropped half-way it leaves nothing behind.
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
        // It is never closed.
        let place = Arc::clone(&self.starts).acquire_owned().await.ok();
        let (task, removals) = (Arc::clone(task), self.removals.clone());
        // An engine that was asked for a container gives one, whether or not anybody waits for it.
        let start = self.removals.spawn(async move {
            let _place = place;
            let environment = Box::pin(host.start(&prepared, &task, &label)).await?;
            Ok(EnvironmentGuard::new(environment, &removals))
        });
        let started = start.await.map_err(|died| GymError::Internal(died.to_string()))?;
        started.map_err(failed)
    }

    /// Waits for removals under way, and removes whatever else there is.
    pub(super) async fn close(self) {
        self.removals.close();
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

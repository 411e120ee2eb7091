//! The start of a job: its directory, environments and proxy.

use std::sync::Arc;

use tokio::time::Instant;

use super::Job;
use crate::common::cancellation::Cancellation;
use crate::job::attempts::Attempts;
use crate::job::dispatcher::Dispatcher;
use crate::job::parts::{JobBase, JobParts};
use crate::job::prepare::Prepared;
use crate::job::queue::Queue;
use crate::job::{JobError, JobSettings, Progress};
use crate::job_dir::{JobDir, write_json};

impl Job {
    pub(super) async fn start(
        settings: JobSettings,
        dir: JobDir,
        prepared: Prepared,
        mut progress: Progress,
        cancellation: Cancellation,
    ) -> Result<Self, JobError> {
        let Prepared { left, records, versions, mut remaining, order, task_versions } = prepared;
        let write = |path| move |source| JobError::Write { path, source };
        // The configuration is written last. A directory without it counts as new.
        if left.is_none() {
            write_json(&dir.versions(), &versions).map_err(write(dir.versions()))?;
            write_json(&dir.config(), records.job_config()).map_err(write(dir.config()))?;
        }
        let first: Vec<_> = remaining.plans.iter().map(|stretch| &stretch.first).collect();
        let is_resumed = left.is_some();
        let (started_before, retries) = left.map_or((None, 0), |left| (left.started_at, left.retries));
        let (agents, concurrency) = (settings.agents.len(), settings.concurrency);
        let (per_task, max_empty) = (settings.per_task, settings.max_empty_trials);
        let base = JobBase {
            settings,
            dir,
            records: &records,
            first: &first,
            started_at: started_before,
            cancellation,
            served: None,
        };
        let parts = JobParts::start(base, &progress).await?;
        let context = Arc::clone(&parts.context);
        progress.name_agents(agents > 1);
        let following = progress.follow(&context.admin);
        let job_id = records.job_id();
        context.settle_left(&mut remaining).await;
        let queue = Queue::new(job_id, remaining.plans, concurrency, per_task);
        let job = (job_id, records.job_name());
        let dispatcher =
            Dispatcher::new(Arc::clone(&context), queue, parts.proxy.trial_admission(), job, max_empty);
        Ok(Self {
            context,
            parts,
            records,
            progress,
            following,
            at_once: concurrency.get(),
            began: Instant::now(),
            attempts: Attempts::before(order, remaining.done, remaining.older, retries),
            dispatcher,
            is_resumed,
            task_versions,
        })
    }
}

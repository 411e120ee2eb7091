//! The start of a job: its directory, environments and proxy.

use std::sync::Arc;

use jiff::Timestamp;
use rolltap_proxy::traces::Tracer;
use tokio::time::Instant;

use super::Job;
use crate::common::cancellation::Cancellation;
use crate::environment::JobLabel;
use crate::failure::chain;
use crate::job::attempts::Attempts;
use crate::job::prepare::Prepared;
use crate::job::proxy::JobProxy;
use crate::job::queue::Queue;
use crate::job::{JobError, JobSettings, Progress};
use crate::job_dir::{JobDir, Log, write_json};
use crate::trial::{TrialContext, TrialHost, TrialOutcome};

impl Job {
    pub(super) async fn start(
        settings: JobSettings,
        dir: JobDir,
        prepared: Prepared,
        mut progress: Progress,
        cancellation: Cancellation,
    ) -> Result<Self, JobError> {
        let Prepared { left, records, versions, remaining, order, task_versions } = prepared;
        let write = |path| move |source| JobError::Write { path, source };
        // The configuration is written last. A directory without it counts as new.
        if left.is_none() {
            write_json(&dir.versions(), &versions).map_err(write(dir.versions()))?;
            write_json(&dir.config(), records.job_config()).map_err(write(dir.config()))?;
        }
        let log = Log::create(&dir.log()).map_err(write(dir.log()))?;
        let (tracer, exporting) = settings.traces.clone().map(Tracer::start).transpose()?.unzip();
        let label = JobLabel::new(records.job_name());
        let first: Vec<_> = remaining.plans.iter().map(|stretch| &stretch.first).collect();
        let place = TrialHost::connect(&settings, &first, &label, &dir, progress.activities()).await?;
        let traces = settings.traces.clone();
        let started = JobProxy::start(settings.proxy, place.bind_address(), dir.data(), traces).await;
        let (proxy, admin, published) = match started {
            Ok(started) => started,
            Err(error) => {
                close(place).await;
                return Err(error);
            }
        };
        let is_resumed = left.is_some();
        let (started_before, retries) = left.map_or((None, 0), |left| (left.started_at, left.retries));
        let context = TrialContext {
            started_at: started_before.unwrap_or_else(Timestamp::now),
            dir,
            log,
            place,
            environment: settings.environment,
            admin,
            published,
            history: settings.history,
            sampling: settings.sampling,
            messages: settings.messages,
            retry: settings.retry,
            events: Arc::clone(&progress.events),
            tracer,
            records: records.trials().clone(),
            cancellation,
        };
        progress.name_agents(settings.agents.len() > 1);
        let following = progress.follow(&context.admin);
        let job_id = records.job_id();
        let mut older = remaining.older;
        // These trials ended while the proxy was unreachable, so they may still be open there.
        for outcome in older.iter_mut().filter(|outcome| !outcome.opened) {
            context.seal(outcome).await;
        }
        let mut job = Self {
            context: Arc::new(context),
            records,
            proxy,
            progress,
            following,
            at_once: settings.concurrency.get(),
            began: Instant::now(),
            attempts: Attempts::before(order, remaining.done, older, retries),
            queue: Queue::new(job_id, remaining.plans, settings.concurrency, settings.per_task),
            empty_in_a_row: 0,
            max_empty: settings.max_empty_trials,
            halted: None,
            is_resumed,
            exporting,
            task_versions,
        };
        job.put_rewards_left().await;
        for plan in &remaining.interrupted {
            let outcome = job.context.end_interrupted(plan).await;
            job.attempts.pass_over(outcome);
        }
        Ok(job)
    }

    /// Sets the rewards that the proxy lacks. A process may die between writing a result and setting its reward.
    async fn put_rewards_left(&mut self) {
        let has_reward = |outcome: &TrialOutcome| {
            outcome.status.as_ref().is_some_and(|status| status.completed_at.is_some())
        };
        for outcome in self.attempts.done_mut().iter_mut().filter(|trial| trial.opened && !has_reward(trial))
        {
            self.context.put_reward(outcome).await;
        }
    }
}

async fn close(place: TrialHost) {
    if let Err(error) = place.close().await {
        tracing::warn!(error = chain(&error), "cannot clean up after a job that did not start");
    }
}

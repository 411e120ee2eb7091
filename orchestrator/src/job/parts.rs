//! The parts that run beside the trials of a job: its proxy, its environments and its log.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use jiff::Timestamp;
use rolltap_proxy::SubmissionDesk;
use rolltap_proxy::traces::{Exporting, Tracer};
use tokio_util::task::AbortOnDropHandle;

use super::proxy::{JobProxy, ProxyExtras};
use super::{JobError, JobSettings, Progress};
use crate::common::cancellation::Cancellation;
use crate::environment::JobLabel;
use crate::failure::chain;
use crate::job::records::Records;
use crate::job_dir::{JobDir, Log};
use crate::trial::{TrialContext, TrialHost, TrialPlan};

/// What the parts of a job are started from.
pub(super) struct JobBase<'a> {
    pub(super) settings: JobSettings,
    pub(super) dir: JobDir,
    pub(super) records: &'a Records,
    /// The first trial of each known group.
    pub(super) first: &'a [&'a TrialPlan],
    /// The start of the first run of the job. `None` if this is the first run.
    pub(super) started_at: Option<Timestamp>,
    pub(super) cancellation: Cancellation,
    /// `None` for an admin plane that only this job calls.
    pub(super) served: Option<ServedAdmin>,
}

/// The started parts of a job.
pub(super) struct JobParts {
    pub(super) context: Arc<TrialContext>,
    pub(super) proxy: JobProxy,
    /// Sends the spans of trials. `None` if traces are off.
    exporting: Option<Exporting>,
    /// Writes to the log how many workers there are. `None` if there are none.
    _noting: Option<AbortOnDropHandle<()>>,
}

/// The admin plane of an embedded proxy that others may call.
#[derive(Debug)]
pub(super) struct ServedAdmin {
    pub(super) listen: SocketAddr,
    pub(super) token: Option<String>,
    pub(super) tokens: Option<PathBuf>,
    pub(super) pages: Option<Router>,
    pub(super) submissions: SubmissionDesk,
}

impl JobParts {
    pub(super) async fn start(base: JobBase<'_>, progress: &Progress) -> Result<Self, JobError> {
        let JobBase { settings, dir, records, first, started_at, cancellation, served } = base;
        let write = |path| move |source| JobError::Write { path, source };
        let log = Log::create(&dir.log()).map_err(write(dir.log()))?;
        let (tracer, exporting) = settings.traces.clone().map(Tracer::start).transpose()?.unzip();
        let label = JobLabel::new(records.job_name());
        let place =
            TrialHost::connect(&settings, first, (&label, &dir), records, progress.activities()).await?;
        let traces = settings.traces.clone();
        let extras = ProxyExtras {
            traces,
            served,
            admits_trials: settings.auto_concurrency,
            is_of_cluster: settings.cluster.is_some(),
        };
        let started = JobProxy::start(settings.proxy, place.bind_address(), dir.data(), extras).await;
        let (proxy, admin, published) = match started {
            Ok(started) => started,
            Err(error) => {
                close(place).await;
                return Err(error);
            }
        };
        let context = TrialContext {
            started_at: started_at.unwrap_or_else(Timestamp::now),
            dir,
            log,
            place,
            environment: settings.environment,
            admin,
            published,
            history: settings.history,
            messages: settings.messages,
            retry: settings.retry,
            leaves_rewards: false,
            events: Arc::clone(&progress.events),
            tracer,
            records: records.trials().clone(),
            cancellation,
        };
        let noting = match &context.place {
            TrialHost::Workers(workers) => {
                let log = Log::create(&context.dir.log()).map_err(write(context.dir.log()))?;
                Some(workers.note(move |line| log.line(line)))
            }
            TrialHost::Host(_) | TrialHost::Harbor(_) => None,
        };
        Ok(Self { context: Arc::new(context), proxy, exporting, _noting: noting })
    }

    /// Stops the parts. No trial runs any more. Returns and logs the problems, after these earlier ones.
    pub(super) async fn stop(self, mut problems: Vec<String>) -> Vec<String> {
        let Self { context, proxy, exporting, _noting } = self;
        problems.extend(proxy.stop().await);
        if let Some(exporting) = exporting {
            exporting.finish().await;
        }
        // No trial runs any more, so this is the only owner of the context.
        if let Some(TrialContext { place, log, .. }) = Arc::into_inner(context) {
            let unclean = place.close().await.err();
            problems.extend(unclean.map(|error| format!("environments not removed: {}", chain(&error))));
            problems.iter().for_each(|problem| log.line(problem));
        }
        problems
    }
}

async fn close(place: TrialHost) {
    if let Err(error) = place.close().await {
        tracing::warn!(error = chain(&error), "cannot clean up after a job that did not start");
    }
}

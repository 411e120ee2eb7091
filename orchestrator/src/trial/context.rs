//! The values that all trials of a job share.

use std::sync::Arc;

use jiff::Timestamp;
use rolltap_proxy::History;
use rolltap_proxy::traces::Tracer;

use super::published_plane::PublishedPlane;
use super::records::TrialRecords;
use super::{Events, RetryConfig, TrialHost, TrialOutcome};
use crate::admin_client::AdminClient;
use crate::common::cancellation::Cancellation;
use crate::environment::EnvironmentKind;
use crate::job_dir::{JobDir, Log};

/// The values that all trials of a job share.
pub(crate) struct TrialContext {
    pub(crate) started_at: Timestamp,
    pub(crate) dir: JobDir,
    /// The log of the job. Each trial has a log of its own as well.
    pub(crate) log: Log,
    pub(crate) place: TrialHost,
    pub(crate) environment: EnvironmentKind,
    pub(crate) admin: AdminClient,
    /// The job's own agent plane, if it has a public URL.
    pub(crate) published: Option<PublishedPlane>,
    pub(crate) history: Option<History>,
    /// Whether the job's rollout files have the messages of each call.
    pub(crate) messages: bool,
    pub(crate) retry: RetryConfig,
    /// Whether another process sets the rewards, because it decides which attempt counts.
    pub(crate) leaves_rewards: bool,
    pub(crate) events: Arc<Events>,
    /// `None` if traces are off.
    pub(crate) tracer: Option<Tracer>,
    pub(crate) records: TrialRecords,
    pub(crate) cancellation: Cancellation,
}

impl TrialContext {
    /// Seals the proxy's record of a trial that did not seal it itself. Does nothing if the proxy does not know the
    /// trial.
    pub(crate) async fn seal(&self, outcome: &mut TrialOutcome) {
        if let Ok(status) = self.admin.seal(&outcome.name).await {
            outcome.opened = true;
            outcome.status = Some(status);
        }
    }
}

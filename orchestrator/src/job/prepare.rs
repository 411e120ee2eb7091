//! From a job's settings to the trials that are to run, known before anything is started.

use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use super::attempts::Order;
use super::plan::plan;
use super::resume::{self, Left, Remaining};
use super::tasks::JobTask;
use super::{JobError, JobSettings};
use crate::job_dir::JobDir;
use crate::records::Records;

/// What a job is to do.
pub(super) struct Prepared {
    /// What an earlier run of it left.
    pub(super) left: Option<Left>,
    pub(super) records: Records,
    /// `JobLock`
    pub(super) versions: Value,
    pub(super) remaining: Remaining,
    pub(super) order: Order,
}

impl Prepared {
    /// Reads the job's directory, and writes nothing. The tasks are those of the settings as the job overrides them.
    pub(super) fn look(
        settings: &JobSettings,
        tasks: Vec<JobTask>,
        job_name: &str,
        dir: &JobDir,
    ) -> Result<Self, JobError> {
        let left = resume::look(dir)?;
        let id = left.as_ref().map_or_else(Uuid::now_v7, |left| left.job_id);
        let agents: Vec<_> = settings.agents.iter().cloned().map(Arc::new).collect();
        let extras = settings.overrides.extras()?;
        let plans = plan(id, job_name, tasks, &agents, settings.samples, settings.timeouts, &extras)?;
        let records = Records::new(id, job_name, settings, &plans, dir);
        let versions = records.versions(&plans);
        let order = Order::of(&plans);
        let remaining = match &left {
            Some(left) => {
                left.is_of(dir, records.job_config())?;
                left.sort(dir, plans)?
            }
            None => Remaining { plans, ..Remaining::default() },
        };
        Ok(Self { left, records, versions, remaining, order })
    }
}

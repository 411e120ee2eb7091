//! From a job's settings to the trials that are to run, known before anything is started.

use std::sync::Arc;

use uuid::Uuid;

use super::attempts::Order;
use super::plan::Planner;
use super::resume::{self, Left, Remaining};
use super::stretch::Stretch;
use super::tasks::JobTask;
use super::{JobError, JobSettings};
use crate::job::records::{JobVersions, Records};
use crate::job_dir::JobDir;

/// What a job is to do.
pub(super) struct Prepared {
    /// What an earlier run of it left.
    pub(super) left: Option<Left>,
    pub(super) records: Records,
    /// `JobLock`
    pub(super) versions: JobVersions,
    pub(super) remaining: Remaining,
    pub(super) order: Order,
}

impl Prepared {
    /// Reads the job's directory, and writes nothing. The tasks are those of the settings as the job overrides them.
    pub(super) async fn look(
        settings: &JobSettings,
        tasks: Vec<JobTask>,
        job_name: &str,
        dir: &JobDir,
    ) -> Result<Self, JobError> {
        let left = resume::look(dir).await?;
        let id = left.as_ref().map_or_else(Uuid::now_v7, |left| left.job_id);
        let agents: Vec<_> = settings.agents.iter().cloned().map(Arc::new).collect();
        let extras = settings.overrides.extras()?;
        let planner = Planner {
            job_id: id,
            job_name,
            agents: &agents,
            samples: settings.samples,
            timeouts: settings.timeouts,
            extras: &extras,
        };
        let groups = planner.plan(tasks).await?;
        let records = Records::new(id, job_name, settings, &groups, dir);
        let versions = records.versions(&groups);
        let order = Order::of(&groups);
        let remaining = match &left {
            Some(left) => {
                left.is_of(dir, records.job_config())?;
                left.sort(dir, &groups)?
            }
            None => {
                Remaining { plans: groups.into_iter().map(Stretch::group).collect(), ..Remaining::default() }
            }
        };
        Ok(Self { left, records, versions, remaining, order })
    }
}

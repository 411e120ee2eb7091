//! Turns a job's settings into the trials that remain to be run, before anything starts.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::attempts::Order;
use super::plan::Planner;
use super::resume::{self, Left, Remaining};
use super::stretch::Stretch;
use super::task_versions::TaskVersions;
use super::tasks::JobTask;
use super::{JobError, JobSettings, ResumeError};
use crate::job::records::{JobVersions, Records};
use crate::job_dir::JobDir;
use crate::trial::TrialRequest;

/// The plan of a job.
pub(super) struct Prepared {
    /// The state that an earlier run of the job left, if any.
    pub(super) left: Option<Left>,
    pub(super) records: Records,
    /// The content of `lock.json`, Harbor's `JobLock`.
    pub(super) versions: JobVersions,
    pub(super) remaining: Remaining,
    pub(super) order: Order,
    pub(super) task_versions: TaskVersions,
}

impl Prepared {
    /// Reads the job's directory and writes nothing. `tasks` are those of the settings, with the job's overrides
    /// applied.
    pub(super) async fn look(
        settings: &JobSettings,
        tasks: Vec<JobTask>,
        job_name: &str,
        dir: &JobDir,
        stop: &CancellationToken,
    ) -> Result<Self, JobError> {
        let left = resume::look(dir).await?;
        if left.as_ref().is_some_and(Left::is_of_a_service) {
            return Err(ResumeError::Service(dir.path().to_owned()).into());
        }
        // A resumed job has the id of its first run, because the names of its trials derive from that id.
        let id = left.as_ref().map_or_else(Uuid::now_v7, |left| left.job_id);
        let agents: Vec<_> = settings.agents.iter().cloned().map(Arc::new).collect();
        let extras = settings.overrides.extras()?;
        let sampling = settings.sampling.clone();
        let request = Arc::new(TrialRequest { sampling, stop: stop.clone(), ..TrialRequest::default() });
        let planner = Planner {
            job_id: id,
            job_name,
            agents: &agents,
            samples: settings.samples,
            timeouts: settings.timeouts,
            extras: &extras,
            reward_rules: &settings.reward_rules,
            request: &request,
        };
        let groups = planner.plan(tasks).await?;
        let records = Records::new(id, job_name, settings, &groups, dir);
        let versions = records.versions(&groups);
        let order = Order::of(&groups);
        let task_versions = TaskVersions::of(&groups);
        let remaining = match &left {
            Some(left) => {
                left.is_of(dir, records.job_config())?;
                left.sort(dir, &groups, settings.cluster.is_some())?
            }
            None => {
                Remaining { plans: groups.into_iter().map(Stretch::group).collect(), ..Remaining::default() }
            }
        };
        Ok(Self { left, records, versions, remaining, order, task_versions })
    }
}

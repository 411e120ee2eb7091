//! The jobs whose trials run here: what their trials share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rolltap_cluster::objects::{ArchiveError, FileStore};
use rolltap_proxy::UpstreamTls;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::dir::{LocalTask, WorkerDir};
use crate::admin_client::AdminClient;
use crate::common::activity::Activities;
use crate::common::cancellation::Cancellation;
use crate::environment::{EnvironmentKind, JobLabel};
use crate::failure::chain;
use crate::job::check::task_fits_environment;
use crate::job::config::{AgentDefaults, JobFile};
use crate::job::ready::used_tables;
use crate::job::records::Records;
use crate::job::tasks::Found;
use crate::job::{JobSettings, ProxyChoice};
use crate::job_dir::{JobDir, Log};
use crate::task::{MissingVariables, Task, UsedTables};
use crate::trial::runner::workers::description::{DescribedJob, PlanParts, TrialDescription};
use crate::trial::{
    Events, JobAgent, TaskOverrides, TrialContext, TrialExtras, TrialHost, TrialPlan, TrialRequest,
};

/// The time after which the parts of a job without running trials are removed.
const IDLE: Duration = Duration::from_secs(300);

/// The jobs whose trials run here.
pub(super) struct OpenJobs {
    dir: std::path::PathBuf,
    admin: AdminClient,
    /// Where a job would find the proxy: the URL of the admin plane, and the files of TLS.
    proxy: (String, UpstreamTls),
    environments: Vec<EnvironmentKind>,
    objects: FileStore,
    giving_back: CancellationToken,
    jobs: Mutex<HashMap<DescribedJob, Entry>>,
}

struct Entry {
    job: Arc<OnceCell<Arc<WorkerJob>>>,
    last_used: Instant,
}

/// What the trials of a job share.
pub(super) struct WorkerJob {
    pub(super) context: TrialContext,
    agents: HashMap<String, Arc<JobAgent>>,
    timeouts: crate::failure::TimeoutPolicy,
    extras: TrialExtras,
    overrides: TaskOverrides,
    used: UsedTables,
}

/// Why a trial cannot run here.
#[derive(Debug)]
pub(super) enum NotHere {
    /// The object storage does not answer. Another try may succeed.
    Later(String),
    /// This worker cannot run the trial.
    Never(String),
}

impl NotHere {
    fn never(error: impl std::error::Error) -> Self {
        Self::Never(chain(&error))
    }
}

impl From<ArchiveError> for NotHere {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Storage(_) => Self::Later(chain(&error)),
            _ => Self::never(error),
        }
    }
}

impl OpenJobs {
    pub(super) fn new(
        dir: &WorkerDir,
        admin: AdminClient,
        proxy: (String, UpstreamTls),
        environments: Vec<EnvironmentKind>,
        objects: FileStore,
        giving_back: CancellationToken,
    ) -> Self {
        let dir = dir.path().to_owned();
        Self { dir, admin, proxy, environments, objects, giving_back, jobs: Mutex::default() }
    }

    /// Returns the parts of a job, which are made if they do not exist. Trials that ask at the same time share the work.
    pub(super) async fn open(&self, job: &DescribedJob, dir: JobDir) -> Result<Arc<WorkerJob>, NotHere> {
        let cell = {
            let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Entry { job: Arc::default(), last_used: Instant::now() };
            let entry = jobs.entry(job.clone()).or_insert_with(new);
            entry.last_used = Instant::now();
            Arc::clone(&entry.job)
        };
        cell.get_or_try_init(|| async { Ok(Arc::new(Box::pin(self.made(job, dir)).await?)) }).await.cloned()
    }

    async fn made(&self, job: &DescribedJob, dir: JobDir) -> Result<WorkerJob, NotHere> {
        let settings = self.settings(job).await?;
        let used = used_tables(&settings);
        let records = Records::new(job.id, &job.name, &settings, &[], &dir);
        let label = (&JobLabel::new(&job.name), &dir);
        let place = TrialHost::connect(&settings, &[], label, &records, &Activities::default()).await;
        let place = place.map_err(NotHere::never)?;
        let log = Log::create(&dir.log()).map_err(NotHere::never)?;
        let agents = settings.agents.iter().map(|agent| (agent.label(), Arc::new(agent.clone()))).collect();
        // Requests to stop reach the trials by their own signals.
        let cancellation = Cancellation { stop: self.giving_back.clone(), ..Cancellation::default() };
        Ok(WorkerJob {
            agents,
            timeouts: settings.timeouts,
            extras: settings.overrides.extras().map_err(NotHere::never)?,
            used,
            context: TrialContext {
                started_at: Timestamp::now(),
                dir,
                log,
                place,
                environment: settings.environment,
                admin: self.admin.clone(),
                published: None,
                history: settings.history,
                messages: settings.messages,
                retry: settings.retry,
                leaves_rewards: true,
                events: Arc::new(Events::default()),
                tracer: None,
                records: records.trials().clone(),
                cancellation,
            },
            overrides: settings.overrides,
        })
    }

    /// Reads the settings of a job, and installs its agents.
    async fn settings(&self, job: &DescribedJob) -> Result<JobSettings, NotHere> {
        let path = self.dir.join("jobs").join(format!("{}.json", job.config.sha256));
        self.objects.fetch(&job.config, &path).await?;
        let text = tokio::fs::read(&path).await.map_err(NotHere::never)?;
        let value: Value = serde_json::from_slice(&text).map_err(NotHere::never)?;
        let file = JobFile::of(value).map_err(NotHere::never)?;
        let kind = file.job.environment_kind(&file.own).map_err(NotHere::never)?;
        if !self.environments.contains(&kind) {
            return Err(NotHere::Never(format!("it runs no trials in {kind}")));
        }
        let defaults = AgentDefaults { runner: kind.runner(), ..AgentDefaults::default() };
        let agents = file.job.job_agents(&defaults).map_err(NotHere::never)?;
        let (admin_url, tls) = self.proxy.clone();
        let proxy = ProxyChoice::External { admin_url, token: None, tls };
        let mut settings =
            JobSettings::of_file(file, agents, Found::default(), proxy).map_err(NotHere::never)?;
        for agent in &mut settings.agents {
            agent.spec.install().await.map_err(NotHere::never)?;
        }
        Ok(settings)
    }

    /// Removes the parts of jobs whose last trial ended long ago.
    pub(super) async fn close_idle(&self) {
        let idle: Vec<Entry> = {
            let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            let is_idle = |_: &DescribedJob, entry: &mut Entry| {
                let is_used = Arc::strong_count(&entry.job) > 1
                    || entry.job.get().is_some_and(|job| Arc::strong_count(job) > 1);
                !is_used && entry.last_used.elapsed() > IDLE
            };
            jobs.extract_if(is_idle).map(|(_, entry)| entry).collect()
        };
        for entry in idle {
            close(entry).await;
        }
    }

    /// Removes the parts of all jobs. No trial runs any more.
    pub(super) async fn close(self) {
        for (_, entry) in self.jobs.into_inner().unwrap_or_else(PoisonError::into_inner) {
            close(entry).await;
        }
    }
}

async fn close(entry: Entry) {
    let job = Arc::into_inner(entry.job).and_then(OnceCell::into_inner).and_then(Arc::into_inner);
    let Some(WorkerJob { context: TrialContext { place, .. }, .. }) = job else { return };
    if let Err(error) = place.close().await {
        tracing::warn!(error = chain(&error), "environments are not removed");
    }
}

impl WorkerJob {
    /// Returns the plan of a trial. `stop` ends it early.
    pub(super) fn plan(
        &self,
        description: TrialDescription,
        task: &LocalTask,
        stop: CancellationToken,
    ) -> Result<TrialPlan, NotHere> {
        let label = &description.agent;
        let missing = || NotHere::Never(format!("the configuration of the job has no agent {label:?}"));
        let agent = Arc::clone(self.agents.get(label).ok_or_else(missing)?);
        let mut loaded = Task::load(&task.dir).map_err(NotHere::never)?;
        self.overrides.apply(&mut loaded).map_err(NotHere::never)?;
        let missing = loaded.resolve(self.used).err().unwrap_or_default();
        MissingVariables::check(missing).map_err(NotHere::never)?;
        task_fits_environment(self.context.environment, &self.overrides, &loaded).map_err(NotHere::never)?;
        let request = TrialRequest { stop, ..description.request().clone() };
        let (timeouts, extras) = (self.timeouts, self.extras.clone());
        let parts = PlanParts { task: loaded, task_files: task.files.clone(), agent, timeouts, extras };
        Ok(description.plan(parts, request))
    }
}

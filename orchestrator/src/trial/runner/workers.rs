//! Trials that run on the workers of a cluster. This process offers each trial, waits for its end, and takes its folder.
//!
//! A worker runs a trial up to its seal, its tests and its result. This process decides which attempt counts, so it sets the
//! reward ([`run`]).

pub(crate) mod description;
mod run;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rolltap_cluster::objects::{ArchiveError, Content, FileStore, ObjectStorage};
use rolltap_cluster::work::{JobMonitor, WorkError, WorkKind, WorkQueue};
use rolltap_cluster::{ClusterError, ClusterSettings, connect};
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use self::description::DescribedJob;
use crate::common::words::counted;
use crate::environment::{EnvironmentError, EnvironmentKind, pack_folder};
use crate::job_dir::write_json;
use crate::trial::TrialPlan;

/// The time between two looks at the workers.
const LOOK: Duration = Duration::from_secs(5);
/// The number of looks without a worker after which that is a warning.
const LOOKS_WITHOUT: u32 = 3;
/// The keys of a job's configuration that a worker does not need: paths of this host.
const OF_THIS_HOST: [&str; 3] = ["tasks", "datasets", "jobs_dir"];

/// A cluster whose workers run the trials of a job.
#[derive(Clone, Debug)]
pub struct WorkerCluster {
    /// The NATS servers, which have the queue.
    pub nats: ClusterSettings,
    /// The place of tasks and folders of trials.
    pub objects: ObjectStorage,
}

/// Why trials cannot be offered to workers.
#[derive(Debug, thiserror::Error)]
pub enum WorkersError {
    /// The cluster cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The queue cannot be used.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The object storage cannot be used.
    #[error(transparent)]
    Objects(#[from] ArchiveError),
    /// The directory of a task cannot be packed.
    #[error(transparent)]
    Pack(#[from] EnvironmentError),
    /// A temporary file cannot be written.
    #[error("cannot write a temporary file: {0}")]
    Temporary(#[from] std::io::Error),
}

/// The files of jobs in object storage.
#[derive(Clone, Debug)]
pub(crate) struct WorkObjects {
    /// The configurations of jobs.
    pub(crate) jobs: FileStore,
    /// The directories of tasks.
    pub(crate) tasks: FileStore,
    /// The folders of trials.
    pub(crate) trials: FileStore,
}

impl WorkObjects {
    pub(crate) fn open(storage: &ObjectStorage) -> Self {
        let open = |folder: &str| FileStore::open(storage, folder);
        Self { jobs: open("work/jobs"), tasks: open("work/tasks"), trials: open("work/trials") }
    }
}

/// The workers of a cluster, as one job sees them.
pub(crate) struct Workers {
    monitor: JobMonitor,
    kind: WorkKind,
    job: DescribedJob,
    objects: WorkObjects,
    /// The uploaded tasks, by the checksum of their files.
    tasks: Mutex<HashMap<String, Arc<OnceCell<Content>>>>,
}

/// Returns the kind of the trials of an environment.
///
/// # Errors
/// The name of an environment is a kind, so this cannot fail.
pub(crate) fn kind_of(environment: EnvironmentKind) -> Result<WorkKind, WorkError> {
    environment.to_string().parse().map_err(|error: rolltap_cluster::work::InvalidWorkKind| WorkError::Nats {
        action: "name the queue",
        reason: error.to_string(),
    })
}

impl Workers {
    /// Connects to the cluster, and uploads the configuration of the job.
    ///
    /// # Errors
    /// NATS or the object storage cannot be used.
    pub(crate) async fn start(
        cluster: &WorkerCluster,
        environment: EnvironmentKind,
        (id, name): (Uuid, &str),
        config: &Value,
    ) -> Result<Self, WorkersError> {
        let kind = kind_of(environment)?;
        let connected = Box::pin(connect(&cluster.nats)).await?;
        let queue = Box::pin(WorkQueue::open(&connected, &kind)).await?;
        let objects = WorkObjects::open(&cluster.objects);
        let mut config = config.clone();
        if let Some(fields) = config.as_object_mut() {
            OF_THIS_HOST.iter().for_each(|key| drop(fields.remove(*key)));
        }
        let file = tempfile::NamedTempFile::new()?;
        write_json(file.path(), &config)?;
        let config = objects.jobs.upload(file.path()).await?;
        let job = DescribedJob { id, name: name.to_owned(), config };
        let monitor = JobMonitor::start(&queue, id);
        Ok(Self { monitor, kind, job, objects, tasks: Mutex::default() })
    }

    /// Tells about the workers of this job as they come and go, until the returned handle is dropped.
    pub(crate) fn note(self: &Arc<Self>, note: impl Fn(String) + Send + 'static) -> AbortOnDropHandle<()> {
        let workers = Arc::downgrade(self);
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut ticks = interval(LOOK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let (mut before, mut without) = ((0, 0), 0);
            loop {
                ticks.tick().await;
                let Some(workers) = workers.upgrade() else { return };
                let now = workers.strength();
                without = if now.0 == 0 { without + 1 } else { 0 };
                if now != before {
                    let (count, slots) = (counted(now.0 as u64, "worker"), counted(now.1 as u64, "slot"));
                    note(format!("{count} with {slots} for trials in {}", workers.kind));
                }
                if without == LOOKS_WITHOUT {
                    let kind = &workers.kind;
                    tracing::warn!(
                        "no worker takes trials in {kind}, so they wait: start `rolltap worker -e {kind}` with the same \
                         --cluster, --cluster-name and --cluster-objects"
                    );
                }
                before = now;
            }
        }))
    }

    /// Returns the number of workers that take trials of this job, and of their slots.
    fn strength(&self) -> (usize, usize) {
        let workers = self.monitor.workers();
        let able = workers.iter().filter(|worker| !worker.draining && worker.kinds.contains(&self.kind));
        able.fold((0, 0), |(workers, slots), worker| (workers + 1, slots + worker.slots))
    }

    /// Uploads the directory of the plan's task once.
    async fn uploaded(&self, plan: &TrialPlan) -> Result<Content, WorkersError> {
        let uploads = Arc::clone(
            self.tasks
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(plan.task_files.checksum().to_owned())
                .or_default(),
        );
        let upload = || async {
            let file = packed(&plan.task.dir).await?;
            Ok(self.objects.tasks.upload(file.path()).await?)
        };
        uploads.get_or_try_init(upload).await.copied()
    }
}

/// Packs a folder into a temporary file.
pub(crate) async fn packed(dir: &Path) -> Result<tempfile::NamedTempFile, WorkersError> {
    let dir = dir.to_owned();
    let pack = move || {
        let file = tempfile::NamedTempFile::new()?;
        pack_folder(&dir, file.path())?;
        Ok(file)
    };
    tokio::task::spawn_blocking(pack).await.map_err(std::io::Error::other)?
}

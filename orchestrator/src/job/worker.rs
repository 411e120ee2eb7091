//! The process `rolltap worker`: takes trials from the queue of a cluster and runs them on this host.
//!
//! [`take`] takes trials while slots are free, [`trial`] runs one and hands it over, [`jobs`] has what the trials of a job
//! share, and [`dir`] the files of this process. A worker that gets a signal ends what it has. A worker that is killed is
//! silent, and the job begins other attempts elsewhere.

mod dir;
mod jobs;
mod take;
mod trial;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use rolltap_cluster::work::{Heartbeat, WorkError, WorkQueue, WorkerId, WorkerRecord};
use rolltap_cluster::{ClusterError, connect_to_existing};
use rolltap_proxy::UpstreamTls;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::dir::WorkerDir;
pub use self::dir::WorkerDirError;
use self::jobs::OpenJobs;
use crate::admin_client::{AdminClient, AdminError, CLUSTER_PATIENCE, Greeter};
use crate::common::cancellation::Cancellation;
use crate::environment::{EnvironmentError, EnvironmentKind, Host, JobLabel};
use crate::trial::runner::workers::{WorkObjects, WorkerCluster, kind_of};

/// The settings of a worker.
#[derive(Debug)]
pub struct WorkerSettings {
    /// The cluster.
    pub cluster: WorkerCluster,
    /// The name for people.
    pub name: String,
    /// The number of trials at once.
    pub slots: NonZeroUsize,
    /// The environments in which trials run here.
    pub environments: Vec<EnvironmentKind>,
    /// The URL of the proxy's admin plane.
    pub admin_url: String,
    /// The admin token.
    pub token: Option<String>,
    /// The files of TLS to an admin plane with `https`.
    pub tls: UpstreamTls,
    /// The directory for tasks and running trials. `None` for the one of the user.
    pub dir: Option<PathBuf>,
}

/// Why a worker did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The cluster cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The queue cannot be used.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The directory cannot be used.
    #[error(transparent)]
    Dir(#[from] WorkerDirError),
    /// The proxy does not answer, or refuses the token.
    #[error("the proxy cannot be used")]
    Proxy(#[from] AdminError),
    /// This host has no such environment.
    #[error("cannot run trials in {kind}")]
    Environment {
        /// The environment.
        kind: EnvironmentKind,
        /// The error of the environment.
        #[source]
        source: EnvironmentError,
    },
    /// Harbor runs no trials of a cluster.
    #[error("a worker runs trials in docker or local, not in harbor")]
    Harbor,
    /// A problem of this host affects all trials.
    #[error(
        "this host can run no further trial: {0}; its trials were given back, and other workers run them"
    )]
    Broken(String),
}

impl WorkerError {
    /// Whether a problem of the host ended a worker that had started.
    pub fn is_of_the_host(&self) -> bool {
        matches!(self, Self::Broken(_))
    }
}

/// A worker that takes trials.
#[derive(Clone, Debug)]
pub struct WorkerStarted {
    /// Its name.
    pub name: String,
    /// The number of trials at once.
    pub slots: usize,
    /// Its directory.
    pub dir: PathBuf,
}

/// The parts that the trials of a worker share.
struct Worker {
    id: WorkerId,
    name: String,
    queue: WorkQueue,
    objects: WorkObjects,
    heartbeat: Heartbeat,
    dir: WorkerDir,
    jobs: OpenJobs,
    /// The free slots.
    slots: Arc<Semaphore>,
    trials: TaskTracker,
    /// Cancelled when no further trial is taken.
    draining: CancellationToken,
    /// Cancelled when running trials are given back.
    giving_back: CancellationToken,
    /// The problem of this host, if there is one.
    broken: OnceLock<String>,
}

/// Runs a worker until `cancellation` stops it, or until this host can run no further trial. The first step of the
/// cancellation lets running trials end, and the second gives them back. `started` is called once trials are taken.
///
/// # Errors
/// Fails before the first trial is taken, and when a problem of this host affects all trials.
///
/// The returned future is boxed for the reason given at [`super::run_job`].
pub fn work(
    settings: WorkerSettings,
    cancellation: Cancellation,
    started: impl FnOnce(&WorkerStarted) + Send + 'static,
) -> BoxFuture<'static, Result<(), WorkerError>> {
    Box::pin(async move {
        let slots = settings.slots.get();
        let start = start(settings, &cancellation);
        let Some(worker) = cancellation.unless_stopped(Box::pin(start)).await else { return Ok(()) };
        let (worker, environments) = worker?;
        started(&WorkerStarted { name: worker.name.clone(), slots, dir: worker.dir.path().to_owned() });
        take::all(&worker, environments).await;
        end(worker).await
    })
}

async fn start(
    settings: WorkerSettings,
    cancellation: &Cancellation,
) -> Result<(Arc<Worker>, Vec<EnvironmentKind>), WorkerError> {
    let WorkerSettings { cluster, name, slots, environments, admin_url, token, tls, dir } = settings;
    if environments.contains(&EnvironmentKind::Harbor) {
        return Err(WorkerError::Harbor);
    }
    let dir = WorkerDir::claim(dir)?;
    let admin = AdminClient::with_tls(&admin_url, token, &tls)?.waiting_for(CLUSTER_PATIENCE);
    admin.greet_once_present(Greeter::Worker).await?;
    for &kind in &environments {
        // A missing engine is an error now, and what a dead worker of this host left is removed.
        let host = Host::connect(kind, &JobLabel::new(&name)).await;
        let host = host.map_err(|source| WorkerError::Environment { kind, source })?;
        host.close().await.map_err(|source| WorkerError::Environment { kind, source })?;
    }
    tracing::info!("waiting for the first job of the cluster, which creates the queue");
    let connected = Box::pin(connect_to_existing(&cluster.nats)).await?;
    let queue = WorkQueue::wait(&connected).await;
    let kinds = environments.iter().map(|kind| kind_of(*kind)).collect::<Result<_, _>>()?;
    let (id, slots) = (WorkerId::new(), slots.get());
    let record = WorkerRecord { name: name.clone(), kinds, slots, running: 0, draining: false };
    let heartbeat = Heartbeat::start(&queue, id, record).await?;
    let objects = WorkObjects::open(&cluster.objects);
    let giving_back = cancellation.hurry.clone();
    let jobs = OpenJobs::new(
        &dir,
        admin,
        (admin_url, tls),
        environments.clone(),
        objects.jobs.clone(),
        giving_back.clone(),
    );
    let worker = Worker {
        id,
        name,
        queue,
        objects,
        heartbeat,
        dir,
        jobs,
        slots: Arc::new(Semaphore::new(slots)),
        trials: TaskTracker::new(),
        draining: cancellation.stop.child_token(),
        giving_back,
        broken: OnceLock::new(),
    };
    Ok((Arc::new(worker), environments))
}

/// Ends a worker that takes no further trial, after its trials have ended.
async fn end(worker: Arc<Worker>) -> Result<(), WorkerError> {
    worker.heartbeat.change(|record| record.draining = true);
    worker.trials.close();
    worker.trials.wait().await;
    // No trial runs any more, so this is the only owner.
    let Some(Worker { jobs, heartbeat, broken, .. }) = Arc::into_inner(worker) else { return Ok(()) };
    jobs.close().await;
    heartbeat.leave().await;
    match broken.into_inner() {
        Some(reason) => Err(WorkerError::Broken(reason)),
        None => Ok(()),
    }
}

impl Worker {
    /// Takes no further trial, because this host can run none.
    fn breaks(&self, reason: &str) {
        tracing::error!(reason, "this host can run no further trial");
        // The first problem is the cause.
        let _ = self.broken.set(reason.to_owned());
        self.draining.cancel();
    }
}

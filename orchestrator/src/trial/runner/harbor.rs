//! Runs a job's trials with Harbor's Python package, one by one, so that every environment and agent of Harbor works.
//! rolltap opens and seals the trials at its proxy, and joins Harbor's rewards with the tokens.

mod config;
mod error;
mod protocol;
mod result;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rolltap_proxy::api::TrialOpened;
use serde_json::{Map, Value};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

pub(crate) use config::add_to_record;
pub use error::HarborError;
pub(crate) use protocol::{HarborPhase, TrialEvent};
pub(crate) use result::{HarborResult, failure};
pub(crate) use worker::HarborTrial;

use crate::agents::harbor_agent::python;
use crate::environment::{ComposeProjects, EnvironmentError, JobLabel};
use crate::job_dir::{JobDir, Log};
use crate::trial::TrialPlan;
use crate::trial::{JobAgent, TaskOverrides};
use config::Surroundings;
use protocol::{ApiFormat, Checked, Contract, News, Order};
use worker::Worker;

/// The prefix of the Harbor versions whose trials proceed as rolltap expects.
const VERSIONS: &str = "0.25.";
/// The time limit of an answer. Importing Harbor and its agents takes half a minute if its files are not cached.
const PATIENCE: Duration = Duration::from_secs(180);

/// The settings of Harbor.
#[derive(Clone, Debug, PartialEq)]
pub struct HarborSettings {
    /// The Python that has the package. `None` for `python3` from `PATH`.
    pub python: Option<PathBuf>,
    /// Harbor's environment: a type such as `docker` or `daytona`, or an import path `module:Class`.
    pub environment_type: String,
    /// `environment.kwargs` of Harbor's `TrialConfig`.
    pub environment_kwargs: Map<String, Value>,
}

impl Default for HarborSettings {
    fn default() -> Self {
        Self { python: None, environment_type: "docker".to_owned(), environment_kwargs: Map::new() }
    }
}

/// The part of a job that concerns Harbor.
pub(crate) struct HarborJob<'a> {
    pub(crate) settings: &'a HarborSettings,
    pub(crate) agents: &'a [JobAgent],
    pub(crate) tasks: BTreeSet<PathBuf>,
    pub(crate) without_verifier: bool,
    pub(crate) force_build: bool,
    /// The values of the job that replace those of its tasks.
    pub(crate) overrides: &'a TaskOverrides,
    /// The variables of every environment, with references to this host resolved.
    pub(crate) env: BTreeMap<String, String>,
    /// Whether the proxy is reachable from this machine only.
    pub(crate) is_proxy_hidden: bool,
}

/// Harbor for one job.
pub(crate) struct Harbor {
    python: PathBuf,
    dir: JobDir,
    /// Harbor's `EnvironmentConfig`.
    environment: Value,
    /// The API format of each agent, by the agent's name.
    formats: BTreeMap<String, Option<ApiFormat>>,
    /// The compose projects, if Harbor's environment is `docker`.
    docker: Option<ComposeProjects>,
    log: Arc<Log>,
    worker: tokio::sync::Mutex<Option<Arc<Worker>>>,
    /// Trials that began and whose environments may still exist.
    open: Mutex<BTreeSet<String>>,
}

impl Harbor {
    /// Starts the worker and lets Harbor check the job. Removes the environments that dead jobs of this machine left.
    ///
    /// # Errors
    /// Fails without Python or Harbor, with another version of Harbor, and if Harbor refuses the job. Nothing keeps
    /// running then.
    pub(crate) async fn start(
        job: &HarborJob<'_>,
        label: &JobLabel,
        dir: &JobDir,
    ) -> Result<Self, HarborError> {
        let write = |path: PathBuf| move |source| HarborError::Write { path, source };
        let log = Arc::new(Log::create(&dir.log()).map_err(write(dir.log()))?);
        let docker = match job.settings.environment_type.as_str() {
            "docker" => Some(ComposeProjects::connect(label).await?),
            _ => None,
        };
        let overlay = match &docker {
            Some(docker) => {
                let path = dir.compose_overlay();
                crate::job_dir::write_json(&path, &docker.overlay()).map_err(write(path.clone()))?;
                Some(path)
            }
            None => None,
        };
        let mut harbor = Self {
            python: python(job.settings.python.as_deref()),
            dir: dir.clone(),
            environment: config::environment(job, overlay.as_deref()),
            formats: BTreeMap::new(),
            docker,
            log,
            worker: tokio::sync::Mutex::default(),
            open: Mutex::default(),
        };
        match harbor.check(job).await {
            Ok(formats) => {
                harbor.formats = formats;
                Ok(harbor)
            }
            Err(error) => {
                harbor.end_worker().await;
                Err(error)
            }
        }
    }

    /// Lets Harbor check the job before the first trial. Returns the API formats of the agents.
    async fn check(&self, job: &HarborJob<'_>) -> Result<BTreeMap<String, Option<ApiFormat>>, HarborError> {
        let (worker, mut news) = self.new_worker().await?;
        let agents: Vec<_> =
            job.agents.iter().map(|agent| config::agent(&agent.spec, agent.model.as_deref())).collect();
        let tasks: Vec<_> = job.tasks.iter().map(|dir| dir.display().to_string()).collect();
        worker.order(&Order::Check {
            agents: &agents,
            environment: &self.environment,
            tasks: &tasks,
            without_verifier: job.without_verifier,
        });
        let News::Checked(Checked { problems, warnings, agents }) = self.answer(&worker, &mut news).await?
        else {
            return Err(self.died(&worker).await);
        };
        warnings.iter().for_each(|warning| self.log.line(format!("harbor: {warning}")));
        if !problems.is_empty() {
            return Err(HarborError::Refused(problems));
        }
        let mut formats = BTreeMap::new();
        for (agent, contract) in job.agents.iter().zip(agents) {
            let Some(Contract { installed, api_format }) = contract else { continue };
            let agent = agent.spec.name().to_owned();
            // An agent inside a remote environment cannot reach a proxy of this machine.
            if installed && job.is_proxy_hidden && self.docker.is_none() {
                let environment = job.settings.environment_type.clone();
                return Err(HarborError::OutOfReach { agent, environment });
            }
            formats.insert(agent, api_format);
        }
        *self.worker.lock().await = Some(worker);
        Ok(formats)
    }

    /// Starts a worker and checks its version.
    async fn new_worker(&self) -> Result<(Arc<Worker>, UnboundedReceiver<News>), HarborError> {
        let (worker, mut news) = Worker::start(&self.python, &self.log)?;
        let worker = Arc::new(worker);
        match self.answer(&worker, &mut news).await? {
            News::Hello { harbor: Some(version) } if version.starts_with(VERSIONS) => Ok((worker, news)),
            News::Hello { harbor: Some(found) } => {
                Err(HarborError::Version { python: self.python.clone(), found })
            }
            News::Hello { harbor: None } => Err(HarborError::NoHarbor(self.python.clone())),
            News::Checked(_) | News::OfTrial { .. } => Err(self.died(&worker).await),
        }
    }

    async fn answer(&self, worker: &Worker, news: &mut UnboundedReceiver<News>) -> Result<News, HarborError> {
        match timeout(PATIENCE, news.recv()).await {
            Ok(Some(news)) => Ok(news),
            Ok(None) => Err(self.died(worker).await),
            Err(_) => Err(HarborError::Silent { python: self.python.clone(), seconds: PATIENCE.as_secs() }),
        }
    }

    async fn died(&self, worker: &Worker) -> HarborError {
        HarborError::Worker { python: self.python.clone(), last_words: worker.last_words().await }
    }

    /// Runs a trial that is open at the proxy. A dead worker is replaced.
    pub(crate) async fn run(
        &self,
        plan: &TrialPlan,
        opened: &TrialOpened,
    ) -> Result<HarborTrial, HarborError> {
        let worker = self.living_worker().await?;
        let around = Surroundings {
            dir: &self.dir,
            environment: &self.environment,
            opened,
            api_format: self.formats.get(plan.agent.spec.name()).copied().flatten(),
        };
        // Recorded before the trial starts, so that `close` removes its environment in any case.
        self.open().insert(plan.name.to_string());
        Ok(worker.run(plan.name.as_str(), &config::trial(plan, &around)))
    }

    async fn living_worker(&self) -> Result<Arc<Worker>, HarborError> {
        // The lock is held while a worker starts, so that concurrent trials do not start several.
        let mut current = self.worker.lock().await;
        if let Some(worker) = current.as_ref().filter(|worker| worker.is_alive()) {
            return Ok(Arc::clone(worker));
        }
        if let Some(dead) = current.take() {
            self.log.line("harbor's worker has died; a new one is started");
            dead.end().await;
        }
        let (worker, _) = self.new_worker().await?;
        Ok(Arc::clone(current.insert(worker)))
    }

    /// Records that the trial's environments are removed, and removes them first if Harbor did not.
    pub(crate) async fn shut_down(&self, trial: &str, by_harbor: bool) -> Result<(), EnvironmentError> {
        if !by_harbor && let Some(docker) = &self.docker {
            docker.remove(trial).await?;
        }
        self.open().remove(trial);
        Ok(())
    }

    fn open(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address on which the agent plane must listen so that agents reach it.
    pub(crate) fn bind_address(&self) -> IpAddr {
        self.docker.as_ref().map_or(Ipv4Addr::LOCALHOST.into(), ComposeProjects::gateway)
    }

    async fn end_worker(&self) {
        if let Some(worker) = self.worker.lock().await.take() {
            worker.end().await;
        }
    }

    /// Ends the worker with all of its trials, and removes the environments that they left in Docker.
    ///
    /// # Errors
    /// Fails if an environment cannot be removed.
    pub(crate) async fn close(&self) -> Result<(), EnvironmentError> {
        // The worker ends first, or it could start further containers.
        self.end_worker().await;
        let Some(docker) = &self.docker else { return Ok(()) };
        let open: Vec<_> = self.open().iter().cloned().collect();
        for trial in open {
            docker.remove(&trial).await?;
        }
        docker.close().await
    }
}

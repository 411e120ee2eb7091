//! Runs the terminal agent on one task, without a job and without a proxy. The agent calls the model's own address.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Zoned;
use rolltap_proxy::api::{BaseUrls, TrialOpened};
use rolltap_rollout::ids::TrialId;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::agents::{AgentSpec, Assignment};
use crate::environment::{
    Environment, EnvironmentError, EnvironmentKind, Host, JobLabel, LogDirs, TrialLabel,
    warn_of_missing_sandbox,
};
use crate::failure::{TimeoutPolicy, TrialFailure, chain};
use crate::job_dir::default_job_name;
use crate::task::{MissingVariables, Task, TaskError, UsedTables};
use crate::trial::wait_until_healthy;
use crate::verify::{Rewards, Tests, VerifierError};

/// Which task and agent to run, in which environment, and with which model.
pub struct Settings {
    /// The task's directory.
    pub task: PathBuf,
    /// The kind of environment that the agent works in: docker or local.
    pub environment: EnvironmentKind,
    /// The agent, which is rolltap's terminal agent.
    pub agent: AgentSpec,
    /// Base URL of an OpenAI-compatible server, including `/v1`.
    pub base_url: String,
    /// The API key of the server. Any text if the server needs none.
    pub api_key: String,
    /// The model to request.
    pub model: String,
    /// The directory for trajectory, transcript and logs, which is created if it is missing. If `None`, it is
    /// `agent-runs/` and the time.
    pub logs: Option<PathBuf>,
    /// Whether the task's tests run at the end.
    pub verify: bool,
    /// The agent's time limit. `None` for the limit of the task.
    pub timeout: Option<Duration>,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Report {
    /// Why the agent failed. `None` if it ended by itself.
    pub failure: Option<TrialFailure>,
    /// The agent's report of its work: `turns`, `completed`, `stop`, `summaries`.
    pub metadata: Map<String, Value>,
    /// The verdict of the tests. `None` if they did not run.
    pub verdict: Option<Result<Rewards, VerifierError>>,
    /// The directory of the agent's trajectory and transcript.
    pub logs: PathBuf,
}

/// Why a run has no report.
#[derive(Debug, thiserror::Error)]
pub enum AloneError {
    /// The task cannot be loaded.
    #[error("the task cannot be used")]
    Task(#[from] TaskError),
    /// Variables of this host that the task refers to are missing.
    #[error(transparent)]
    Variables(#[from] MissingVariables),
    /// The task needs more than one agent at one terminal, such as steps or a verifier in an environment of its own.
    #[error("{0}; `rolltap run` runs such tasks")]
    NotAlone(String),
    /// The environment could not be started, or failed.
    #[error("the environment failed")]
    Environment(#[from] EnvironmentError),
    /// The environment did not become healthy, or the run was cancelled before.
    #[error("the environment is not ready: {0}")]
    NotReady(String),
    /// The log directories cannot be created.
    #[error("{path} cannot be made: {source}")]
    Logs {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Runs the agent on the task until it ends, runs out of time or is cancelled. Then removes the environment.
///
/// # Errors
/// The task cannot run, or the environment failed. Failures of the agent and of the tests are in the report.
pub fn run(settings: Settings, cancel: &CancellationToken) -> BoxFuture<'_, Result<Report, AloneError>> {
    // Boxed for the reason given at `run_job`.
    Box::pin(run_alone(settings, cancel))
}

async fn run_alone(settings: Settings, cancel: &CancellationToken) -> Result<Report, AloneError> {
    let mut task = Task::load(&settings.task)?;
    check(&task, &settings)?;
    let used = UsedTables { solution: false, verifier: settings.verify, mcp_servers: true };
    task.resolve(used).or_else(MissingVariables::check)?;
    let below = settings.logs.clone();
    let below = below.unwrap_or_else(|| Path::new("agent-runs").join(default_job_name(&Zoned::now())));
    let logs = directories(&below)?;
    warn_of_missing_sandbox(settings.environment);
    let host = Host::connect(settings.environment, &JobLabel::new("rolltap-agent")).await?;
    // Cancellation drops `start` midway. `host.close` below then removes a half-started environment.
    let worked = match cancel.run_until_cancelled(Box::pin(start(&host, &task))).await {
        None => Err(AloneError::NotReady("cancelled".to_owned())),
        Some(Err(error)) => Err(error),
        Some(Ok(environment)) => {
            tracing::info!(task = task.name, "environment started");
            let worked = Box::pin(work(&settings, &task, &environment, &logs, cancel)).await;
            // A failed removal must not hide the result of the run.
            if let Err(error) = environment.stop().await {
                tracing::warn!(error = chain(&error), "the environment is not removed");
            }
            worked
        }
    };
    // Also after an error, so that nothing remains at the engine.
    host.close().await?;
    worked
}

fn check(task: &Task, settings: &Settings) -> Result<(), AloneError> {
    let refused = |why: String| Err(AloneError::NotAlone(format!("task {:?} {why}", task.name)));
    if let Some(unseen) = settings.agent.would_not_see(task) {
        return refused(format!("gives its agent {unseen}, which the terminal agent does not take"));
    }
    if !task.steps.is_empty() {
        return refused("has steps".to_owned());
    }
    if settings.verify && task.separate_verifier.is_some() {
        return refused("is judged in an environment of its own".to_owned());
    }
    if let Some(why) = settings.environment.unsupported(task) {
        return refused(format!("cannot be worked at in environment {}: {why}", settings.environment));
    }
    Ok(())
}

fn directories(below: &Path) -> Result<LogDirs, AloneError> {
    let logs = LogDirs {
        agent: below.join("agent"),
        verifier: below.join("verifier"),
        artifacts: below.join("artifacts"),
        exclude: Vec::new(),
    };
    for path in [&logs.agent, &logs.verifier, &logs.artifacts] {
        std::fs::create_dir_all(path).map_err(|source| AloneError::Logs { path: path.clone(), source })?;
    }
    Ok(logs)
}

async fn start(host: &Host, task: &Task) -> Result<Environment, AloneError> {
    let prepared = Box::pin(host.prepare(task)).await?;
    let environment = Box::pin(host.start(&prepared, task, &TrialLabel::new(&task.name))).await?;
    if let Some(check) = &task.config.environment.healthcheck {
        let healthy = Box::pin(wait_until_healthy(&environment, check, None)).await;
        healthy.map_err(|error| AloneError::NotReady(error.to_string()))?;
    }
    Ok(environment)
}

async fn work(
    settings: &Settings,
    task: &Task,
    environment: &Environment,
    logs: &LogDirs,
    cancel: &CancellationToken,
) -> Result<Report, AloneError> {
    environment.set_network(&task.network.agent).await?;
    let urls = BaseUrls {
        openai: settings.base_url.clone(),
        anthropic: settings.base_url.clone(),
        gemini: settings.base_url.clone(),
    };
    // Without a proxy, the agent gets the model's own address and key.
    let opened =
        TrialOpened { trial_id: TrialId::generate(), key: settings.api_key.clone(), base_urls: urls };
    let limits = TimeoutPolicy::default();
    let assignment = Assignment {
        task,
        environment,
        trial: &opened,
        urls_inside: &opened.base_urls,
        model: Some(&settings.model),
        mcp_servers: &task.config.environment.mcp_servers,
        skills_dir: task.config.environment.skills_dir.as_deref(),
        timeout: settings.timeout.or_else(|| limits.agent(task.config.agent.timeout_sec)),
        logs: &logs.agent,
        cancel,
    };
    let outcome = match Box::pin(settings.agent.set_up(&assignment)).await {
        Ok(ready) => Box::pin(settings.agent.run(assignment, ready)).await,
        Err(failure) => failure.into(),
    };
    // A cancelled run must end soon, so its tests do not run.
    let judged = settings.verify && !cancel.is_cancelled();
    let verdict = if judged { Some(judge(task, environment, logs, &limits).await?) } else { None };
    // Background processes in the agent's terminal are part of its work. They run until the tests have ended.
    drop(outcome.terminal);
    let logs = logs.agent.clone();
    Ok(Report { failure: outcome.failure, metadata: outcome.metadata, verdict, logs })
}

async fn judge(
    task: &Task,
    environment: &Environment,
    logs: &LogDirs,
    limits: &TimeoutPolicy,
) -> Result<Result<Rewards, VerifierError>, AloneError> {
    tracing::info!("running the task's tests");
    let tests = Tests::prepare(task, environment).await?;
    Ok(Box::pin(tests.run(logs, limits)).await)
}

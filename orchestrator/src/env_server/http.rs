//! The routes of the server.

use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use rolltap_proxy::Admission;
use uuid::Uuid;

use super::error::GymError;
use super::hosts::Hosts;
use super::lease::Lease;
use super::registry::Registry;
use super::reply::{ClosedReply, Created, EnvStatus, Leased, ResetReply, StepReply};
use super::request::{self, Action, Create, TaskPlace};
use super::slot::{Removed, Slot};
use super::spec::Facts;
use crate::environment::EnvironmentKind;
use crate::failure::chain;
use crate::job::config::{JobConfig, TaskRef};
use crate::job::tasks;
use crate::task::{MissingVariables, Runner, Task, UsedTables};

/// The maximum size of a request body in bytes: a megabyte of keystrokes, each escaped.
const LARGEST_BODY: usize = 8 * 1024 * 1024;

/// The state of the handlers.
pub(super) struct Gym {
    pub(super) admission: Admission,
    /// Weak, because a caller that never completes its request must not keep the hosts alive when the server ends.
    pub(super) hosts: Weak<Hosts>,
    pub(super) registry: Arc<Registry>,
    /// The default kind of environment.
    pub(super) kind: EnvironmentKind,
    pub(super) lease: Duration,
}

type Body = Result<Bytes, BytesRejection>;

/// Returns the router with all routes.
pub(super) fn router(gym: Arc<Gym>) -> Router {
    let guarded = Router::new()
        .route("/v1/envs", post(create).get(list))
        .route("/v1/envs/{id}", get(status).delete(close))
        .route("/v1/envs/{id}/reset", post(reset))
        .route("/v1/envs/{id}/step", post(step))
        .route("/v1/envs/{id}/lease", post(lease))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(middleware::from_fn_with_state(Arc::clone(&gym), admit));
    Router::new()
        // This route is not guarded, so a health check needs no token.
        .route("/healthz", get(|| async { "ok\n" }))
        .merge(guarded)
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_path)
        .with_state(gym)
}

async fn admit(State(gym): State<Arc<Gym>>, request: Request, next: Next) -> Response {
    match gym.admission.check(&request) {
        Ok(()) => next.run(request).await,
        Err(error) => GymError::from(error).into_response(),
    }
}

async fn no_such_path(request: Request) -> GymError {
    GymError::NoSuchPath(request.method().clone(), request.uri().path().to_owned())
}

async fn create(State(gym): State<Arc<Gym>>, body: Body) -> Result<(StatusCode, Json<Created>), GymError> {
    let asked = Create::read(&body?)?;
    // Checked early, because loading a task may take long. `add` checks again.
    gym.registry.must_have_room()?;
    let kind = gym.allowed(asked.environment.unwrap_or(gym.kind))?;
    let task = Arc::new(load(asked.task, kind).await?);
    let lease = Lease::new(asked.lease.unwrap_or(gym.lease));
    let id = format!("env-{}", Uuid::now_v7().simple());
    let created = Created {
        env_id: id.clone(),
        task_id: task.name.clone(),
        instruction: task.instruction.clone(),
        lease_seconds: lease.length.as_secs_f64(),
        status: "created",
    };
    let facts = Facts {
        id,
        task,
        kind,
        terminal: asked.terminal,
        size: asked.size,
        format: asked.format,
        confirm_completion: asked.confirm_completion,
        max_steps: asked.max_steps,
    };
    gym.registry.add(Slot::new(facts, lease))?;
    Ok((StatusCode::CREATED, Json(created)))
}

async fn reset(
    State(gym): State<Arc<Gym>>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Json<ResetReply>, GymError> {
    let slot = gym.registry.get(&id)?;
    // The lease stands still until this call is answered.
    let _caller = slot.lease.call();
    request::nothing(&body?)?;
    slot.reset(gym.hosts()?).await.map(Json)
}

async fn step(
    State(gym): State<Arc<Gym>>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Json<StepReply>, GymError> {
    let slot = gym.registry.get(&id)?;
    let _caller = slot.lease.call();
    let action = Action::read(&body?)?;
    slot.step(action, gym.hosts()?).await.map(Json)
}

async fn lease(
    State(gym): State<Arc<Gym>>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Json<Leased>, GymError> {
    let slot = gym.registry.get(&id)?;
    let _caller = slot.lease.call();
    request::nothing(&body?)?;
    Ok(Json(Leased { env_id: id, lease_seconds: slot.lease.length.as_secs_f64() }))
}

/// Lists all environments. This renews no lease.
async fn list(State(gym): State<Arc<Gym>>) -> Json<Vec<EnvStatus>> {
    Json(gym.registry.all().iter().map(|slot| slot.status(false)).collect())
}

async fn status(State(gym): State<Arc<Gym>>, Path(id): Path<String>) -> Result<Json<EnvStatus>, GymError> {
    let slot = gym.registry.get(&id)?;
    let _caller = slot.lease.call();
    Ok(Json(slot.status(true)))
}

/// Removes an environment. Succeeds even if it does not exist. The removal continues if the caller leaves.
async fn close(State(gym): State<Arc<Gym>>, Path(id): Path<String>) -> Result<Json<ClosedReply>, GymError> {
    if let Ok(slot) = gym.registry.get(&id) {
        let registry = Arc::clone(&gym.registry);
        let removal = tokio::spawn(async move { registry.remove(&slot, Removed::Closed).await });
        removal.await.map_err(|died| GymError::Internal(died.to_string()))?;
    }
    Ok(Json(ClosedReply { env_id: id, status: "closed" }))
}

impl Gym {
    fn hosts(&self) -> Result<Arc<Hosts>, GymError> {
        self.hosts.upgrade().ok_or(GymError::Stopping)
    }

    /// Rejects local environments unless they are the server's default, because they run as the server's user.
    fn allowed(&self, kind: EnvironmentKind) -> Result<EnvironmentKind, GymError> {
        if kind == EnvironmentKind::Local && self.kind != EnvironmentKind::Local {
            let message = "environment is \"local\", which is no sandbox: the server has to be started for it, with -e local";
            return Err(GymError::BadRequest(message.to_owned()));
        }
        Ok(kind)
    }
}

/// Loads a task, and fetches it first if it is in a repository. Rejects a task that the environment cannot honour.
async fn load(place: TaskPlace, kind: EnvironmentKind) -> Result<Task, GymError> {
    let TaskPlace { path, git_url, git_commit_id } = place;
    let reference = TaskRef { path: Some(path), git_url, git_commit_id, ..TaskRef::default() };
    let job = JobConfig { tasks: vec![reference], ..JobConfig::default() };
    let found = tasks::find(&job, Runner::Rolltap).await;
    let found = found.map_err(|error| GymError::BadRequest(format!("task: {}", chain(&error))))?;
    if let Some(problem) = found.unusable.iter().find_map(|unusable| unusable.problems.first()) {
        return Err(GymError::BadRequest(format!("task: {problem}")));
    }
    let task = found.tasks.into_iter().next().map(|found| found.task);
    let mut task = task.ok_or_else(|| GymError::BadRequest("task: there is none".to_owned()))?;
    // The client is the agent, so nothing reads the solution.
    let used = UsedTables { solution: false, ..UsedTables::ALL };
    let resolved = task.resolve(used).or_else(MissingVariables::check);
    resolved.map_err(|missing| GymError::BadRequest(format!("task: {missing}")))?;
    if !task.steps.is_empty() {
        let message =
            format!("task {} has steps, and an episode is one instruction: rolltap run has steps", task.name);
        return Err(GymError::BadRequest(message));
    }
    match kind.unsupported(&task) {
        Some(what) => {
            let message = format!("the environment {kind} cannot honour what task {} has: {what}", task.name);
            Err(GymError::BadRequest(message))
        }
        None => Ok(task),
    }
}

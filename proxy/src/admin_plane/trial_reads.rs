//! The requests that read trials: status, calls, rollouts, causes.

use std::num::NonZeroUsize;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use rolltap_rollout::call::Call;
use rolltap_rollout::export::pipeline::prepare::PreparedTrial;
use rolltap_rollout::ids::{RewardVersion, TrialId};
use rolltap_rollout::row::RolloutRow;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AdminPlane;
use super::call_item::{CallItem, CallWithMessages};
use super::error::AdminError;
use super::ndjson::Lines;
use super::paged::{Paged, page_size};
use super::prepare::AskedPreparation;
use crate::admin_plane::causes;
use crate::api::{CapturedAnswer, CauseFigures, TrialStatus};
use crate::feed;

/// The query of `GET /v1/trials`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// Only trials whose name sorts after this name.
    after: Option<TrialId>,
    /// The largest number of trials in the answer.
    #[serde(default = "page_size")]
    limit: NonZeroUsize,
}

pub(super) async fn list(
    State(plane): State<Arc<AdminPlane>>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Paged<TrialStatus>, AdminError> {
    let Query(Page { after, limit }) = page?;
    let (trials, has_more) = plane.lifecycle.trials.page(after.as_ref(), limit.get());
    let mut listed = Vec::with_capacity(trials.len());
    for trial in &trials {
        listed.push(plane.status_of(trial).await);
    }
    let last = trials.last().filter(|_| has_more);
    let next = last.map(|trial| format!("/v1/trials?limit={limit}&after={}", trial.opened().facts.trial_id));
    Ok(Paged { items: listed, next })
}

pub(super) async fn status(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<TrialId>, PathRejection>,
) -> Result<Json<TrialStatus>, AdminError> {
    let trial = plane.trial(id)?;
    Ok(Json(plane.status_of(&trial).await))
}

pub(super) async fn causes(State(plane): State<Arc<AdminPlane>>) -> Json<Vec<CauseFigures>> {
    Json(causes::figures(&plane.lifecycle.trials.all(), &plane.lifecycle.store).await)
}

/// The query of `GET /v1/trials/{id}/calls`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CallsQuery {
    /// Whether each call has its messages, tools and answers as chat messages. Each call repeats the history before it.
    #[serde(default)]
    messages: bool,
}

pub(super) async fn calls(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<TrialId>, PathRejection>,
    asked: Result<Query<CallsQuery>, QueryRejection>,
) -> Result<Lines<CallItem>, AdminError> {
    let Query(CallsQuery { messages }) = asked?;
    let (trial, store) = (plane.trial(id)?, &plane.lifecycle.store);
    let calls = trial.calls(store).await.into_iter();
    if !messages {
        return Ok(Lines::of(calls.map(CallItem::Call).collect()));
    }
    let conversations = trial.conversations(store).await;
    let with_messages = |call: Arc<Call>| {
        let conversation = conversations.of_call(&call.call_id).cloned();
        CallItem::WithMessages(CallWithMessages::new(call, conversation))
    };
    Ok(Lines::of(calls.map(with_messages).collect()))
}

pub(super) async fn answers(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<TrialId>, PathRejection>,
) -> Result<Lines<CapturedAnswer>, AdminError> {
    Ok(Lines::of(plane.trial(id)?.answers(&plane.lifecycle.store).await))
}

/// A line of the answer.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum RolloutItem {
    /// A branch of the trial.
    Row(Box<RolloutRow>),
    /// With `prepare`: the whole trial, in one line.
    Prepared(PreparedTrial),
}

/// The query of `GET /v1/trials/{id}/rollout`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RolloutQuery {
    /// The version of the reward, such as `regrade-1`. If absent, the reward of the trial itself.
    reward_version: Option<RewardVersion>,
    /// Whether each call of the rows has its messages and tools. Each call repeats the history before it, so a row
    /// grows with the square of the turns. Not with `prepare`.
    #[serde(default)]
    messages: bool,
    /// `train` or `mask`: the answer has the trial after the rules of an export instead of its rows.
    prepare: Option<String>,
    /// With `prepare`, the treatment of a trial of several branches: `all` (default), `longest` or `error`.
    on_fork: Option<String>,
    /// With `prepare`, the treatment of a trial without a valid reward: `mask` (default) or `zero`.
    failed: Option<String>,
    /// With `prepare`, whether constrained calls are trained: `true` or `false` (default).
    train_constrained: Option<String>,
    /// With `prepare`, the rule that makes the number to train on: the name of a reward, `mean`, `sum`, or
    /// `NAME=WEIGHT,NAME=WEIGHT…`. The default is the reward of the trial.
    reward: Option<String>,
}

pub(super) async fn rollout(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<TrialId>, PathRejection>,
    asked: Result<Query<RolloutQuery>, QueryRejection>,
) -> Result<Lines<RolloutItem>, AdminError> {
    let Query(RolloutQuery { reward_version, messages, prepare, on_fork, failed, train_constrained, reward }) =
        asked?;
    let prepare =
        AskedPreparation { prepare, on_fork, failed, train_constrained, reward, messages }.options()?;
    let trial = plane.trial(id)?;
    // The reward of this trial proves that the version exists, without a look at all others.
    if reward_version.as_ref().is_some_and(|version| !trial.has_version(version)) {
        plane.version_exists(reward_version.as_ref())?;
    }
    let facts = &trial.opened().facts;
    let Some(reward) = trial.reward_if_sealed(reward_version.as_ref()) else {
        let message = format!("trial {} is open: it has a rollout once it is sealed", facts.trial_id);
        return Err(AdminError::conflict(message));
    };
    let superseded = plane.lifecycle.feed.ledger().standing(&facts.trial_id).superseded;
    let store = &plane.lifecycle.store;
    let failed = |error| AdminError::internal(format!("the rows were not made: {error}"));
    if let Some(options) = prepare {
        let prepared = feed::prepared(&trial, store, reward, superseded, options).await;
        return Ok(Lines::of(vec![RolloutItem::Prepared(prepared.map_err(failed)?)]));
    }
    let rows = feed::rows(&trial, store, reward, superseded, messages).await.map_err(failed)?;
    Ok(Lines::of(rows.into_iter().map(|row| RolloutItem::Row(Box::new(row))).collect()))
}

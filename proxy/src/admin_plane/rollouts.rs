//! The feed of complete trials.

use std::num::NonZeroU64;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use futures_util::stream;
use rolltap_rollout::ids::RewardVersion;
use schemars::JsonSchema;
use serde::Deserialize;

use super::AdminPlane;
use super::error::AdminError;
use super::ndjson::Lines;
use super::prepare::AskedPreparation;
use crate::api::RolloutLine;
use crate::common::seconds::Seconds;
use crate::feed::{Reader, Reading};

/// The query of `GET /v1/rollouts`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RolloutsQuery {
    /// Only trials after the line with this cursor. If absent, from the first trial.
    after: Option<String>,
    /// Long poll: the time to wait for the first trial, in seconds. The answer is empty if no trial becomes complete.
    wait: Option<Seconds>,
    /// Only trials whose group is closed. Trials of a group come together.
    #[serde(default)]
    closed_groups: bool,
    /// Superseded attempts too.
    #[serde(default)]
    superseded: bool,
    /// Continue past trials that retention removed before this reader had them. If false, the answer is a 410.
    #[serde(default)]
    allow_gap: bool,
    /// The largest number of trials. If absent, all that exist when the answer begins.
    limit: Option<NonZeroU64>,
    /// The version of the rewards, such as `regrade-1`. If absent, each trial has its own reward. A trial without a
    /// reward in the version has the reward null.
    reward_version: Option<RewardVersion>,
    /// Whether each call of the rows has its messages and tools. Each call repeats the history before it, so a line
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

/// Returns a line per trial. Each line is made when the client reads it.
pub(super) async fn rollouts(
    State(plane): State<Arc<AdminPlane>>,
    asked: Result<Query<RolloutsQuery>, QueryRejection>,
) -> Result<Lines<RolloutLine>, AdminError> {
    let Query(asked) = asked?;
    let RolloutsQuery { after, wait, closed_groups, superseded, allow_gap, limit, reward_version, .. } =
        asked;
    let RolloutsQuery { messages, prepare, on_fork, failed, train_constrained, reward, .. } = asked;
    let prepare =
        AskedPreparation { prepare, on_fork, failed, train_constrained, reward, messages }.options()?;
    let limit = limit.map(NonZeroU64::get);
    plane.version_exists(reward_version.as_ref())?;
    let reading =
        Reading { after, closed_groups, superseded, allow_gap, limit, prepare, reward_version, messages };
    let (feed, trials) = (Arc::clone(&plane.lifecycle.feed), Arc::clone(&plane.lifecycle.trials));
    let mut reader = Reader::new(feed, trials, plane.lifecycle.store.clone(), reading)?;
    if let Some(wait) = wait {
        reader.wait(wait.into(), &plane.draining).await;
    }
    // The status is sent already when a line fails. The answer then breaks off without its end, so the client notices.
    let lines = stream::try_unfold(reader, |mut reader| async {
        let line =
            reader.next_line().await.inspect_err(|error| tracing::error!(%error, "a reader's answer ends"));
        Ok::<_, crate::feed::LineError>(line?.map(|line| (line, reader)))
    });
    Ok(Lines::of_body(Body::from_stream(lines)))
}

//! Requests for one trial: opening it, and finding the shard that has it.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use serde::Deserialize;

use super::{AdminDoor, Refusal, WholeRequest};
use crate::admin_plane::error::AdminError;

/// The members of `POST /v1/trials` that decide about the shard.
#[derive(Debug, Default, Deserialize)]
struct Place {
    group_id: Option<String>,
    trial_id: Option<String>,
}

impl AdminDoor {
    /// Opens a trial on the shard of its group, or on that of its name.
    pub(super) async fn open(&self, request: Request) -> Result<Response, Refusal> {
        let request = WholeRequest::read(request).await?;
        // The shard answers a malformed body with the error.
        let place: Place = serde_json::from_slice(&request.body).unwrap_or_default();
        let count = self.count();
        let shard = match &place {
            Place { group_id: Some(group), .. } => count.of_group(group),
            Place { trial_id: Some(trial), .. } => count.of_trial(trial),
            Place { .. } => self.next_shard(),
        };
        if let Some(trial) = &place.trial_id {
            self.must_be_new(trial, shard, &request.parts.headers).await?;
        }
        let answer = self.ask(shard, request.copy()).await;
        if let Some(trial) = place.trial_id.filter(|_| answer.status() == StatusCode::CREATED) {
            self.locations.learn(&trial, shard);
        }
        Ok(answer)
    }

    /// Checks that no shard but this one has a trial of this name. The shard itself checks its own trials.
    ///
    /// Two openings of one name in two groups at the same time may both succeed.
    async fn must_be_new(&self, trial: &str, shard: u32, headers: &HeaderMap) -> Result<(), Refusal> {
        // A name with other characters is not valid, which its shard answers.
        let Ok(path) = format!("/v1/trials/{trial}").parse::<Uri>() else { return Ok(()) };
        let question = |_| {
            let mut question = Request::new(Body::empty());
            *question.method_mut() = Method::HEAD;
            *question.uri_mut() = path.clone();
            if let Some(token) = headers.get(header::AUTHORIZATION) {
                question.headers_mut().insert(header::AUTHORIZATION, token.clone());
            }
            question
        };
        let others = self.shards().filter(|other| *other != shard);
        let mut answers: FuturesUnordered<_> = others.map(|other| self.ask(other, question(other))).collect();
        while let Some(answer) = answers.next().await {
            match answer.status() {
                StatusCode::NOT_FOUND => {}
                StatusCode::OK => {
                    let taken = format!("there is a trial {trial} already, in another group: give another trial_id");
                    return Err(AdminError::conflict(taken).into());
                }
                // An answer to HEAD has no body that would state the reason.
                status => return Err(super::unavailable(format!(
                    "whether the name {trial} is new cannot be seen at all shards: one answered {status}; repeat the request"
                )).into()),
            }
        }
        Ok(())
    }

    /// Passes a request to the shard that has the trial. All shards get it if that is not known: those that do not have the
    /// trial do nothing.
    pub(super) async fn find(&self, trial: &str, request: Request) -> Result<Response, Refusal> {
        if let Some(shard) = self.locations.of(trial) {
            let answer = self.ask(shard, request).await;
            if answer.status() == StatusCode::NOT_FOUND {
                self.locations.forget(trial);
            }
            return Ok(answer);
        }
        let request = WholeRequest::read(request).await?;
        let mut answers: FuturesUnordered<_> = self
            .shards()
            .map(|shard| {
                let request = request.copy();
                async move { (shard, self.ask(shard, request).await) }
            })
            .collect();
        let mut best: Option<Response> = None;
        while let Some((shard, answer)) = answers.next().await {
            // An error may come from a shard that does not have the trial.
            if answer.status().is_success() {
                self.locations.learn(trial, shard);
            }
            if rank(answer.status()) == Rank::Final {
                return Ok(answer);
            }
            let is_better = best.as_ref().is_none_or(|best| rank(answer.status()) > rank(best.status()));
            best = if is_better { Some(answer) } else { best };
        }
        Ok(best.unwrap_or_else(|| super::unavailable("the cluster has no shard")))
    }
}

/// What an answer shows about a trial whose shard is not known, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The shard does not know the key of the trial, or denies the token.
    Denied,
    /// The shard does not have the trial.
    NotHere,
    /// The shard cannot answer at present, and may have the trial.
    Unavailable,
    /// The answer of the shard that has the trial.
    Final,
}

fn rank(status: StatusCode) -> Rank {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Rank::Denied,
        StatusCode::NOT_FOUND => Rank::NotHere,
        StatusCode::SERVICE_UNAVAILABLE => Rank::Unavailable,
        _ => Rank::Final,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_cannot_answer_hides_no_trial() {
        let order =
            [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND, StatusCode::SERVICE_UNAVAILABLE, StatusCode::OK];
        assert!(order.map(rank).is_sorted());
        assert_eq!(rank(StatusCode::CONFLICT), Rank::Final);
    }
}

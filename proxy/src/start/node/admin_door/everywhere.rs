//! Policy versions, pauses and upstreams, which are the same at all shards.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Bytes;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use http::{Method, StatusCode, Uri, header};
use sha2::{Digest, Sha256};

use super::lists::read;
use super::placement::Change;
use super::{AdminDoor, Refusal, WholeAnswer, WholeRequest};
use crate::admin_plane::error::AdminError;
use crate::api::{PausePolicy, PolicyStatus, UpstreamState, UpstreamStatus};

impl AdminDoor {
    /// Makes a change at all shards. A change that reached some of them and not all is an error, and can be repeated.
    pub(super) async fn change(&self, change: Change, request: Request) -> Result<Response, Refusal> {
        let request = WholeRequest::read(request).await?;
        match change {
            Change::SetPolicy => self.set_policy(&request).await,
            Change::Pause => self.pause(request).await,
            Change::Resume => policy(&self.ask_all(&request).await?).map(IntoResponse::into_response),
            Change::AddUpstream => {
                let answers = self.ask_all(&request).await?;
                let added: Vec<UpstreamStatus> = answers.iter().map(read).collect::<Result<_, _>>()?;
                let sum = upstreams(added).into_iter().next();
                Ok((StatusCode::CREATED, Json(sum)).into_response())
            }
            Change::RemoveUpstream(id) => self.remove_upstream(id, request).await,
        }
    }

    /// Names the weights at one shard after the other, so that all shards give versions the same numbers.
    async fn set_policy(&self, request: &WholeRequest) -> Result<Response, Refusal> {
        let mut answers = Vec::new();
        for shard in self.shards() {
            answers.push(self.ask_whole(shard, request).await?);
        }
        policy(&answers).map(IntoResponse::into_response)
    }

    /// Holds the calls of all shards before it waits for those in flight, so that none can start in between.
    async fn pause(&self, request: WholeRequest) -> Result<Response, Refusal> {
        // A shard answers a malformed body with the error.
        let asked: Option<PausePolicy> = serde_json::from_slice(&request.body).ok();
        if let Some(asked @ PausePolicy { wait: true, .. }) = asked {
            let body = serde_json::to_vec(&PausePolicy { wait: false, ..asked }).unwrap_or_default();
            self.ask_all(&request.with_body(body.into())).await?;
        }
        policy(&self.ask_all(&request).await?).map(IntoResponse::into_response)
    }

    /// Drains an upstream at each shard, where it has an id of its own.
    async fn remove_upstream(&self, id: u64, request: WholeRequest) -> Result<Response, Refusal> {
        let removals = join_all(self.shards().map(|shard| self.remove_at(shard, id, &request))).await;
        let removed: Vec<Option<UpstreamStatus>> = removals.into_iter().collect::<Result<_, _>>()?;
        match upstreams(removed.into_iter().flatten().collect()).into_iter().next() {
            Some(sum) => Ok(Json(sum).into_response()),
            None => Err(AdminError::not_found(format!("there is no upstream {id}")).into()),
        }
    }

    /// Drains the upstream with this id of a sum at one shard. `None` if the shard does not have it.
    async fn remove_at(
        &self,
        shard: u32,
        id: u64,
        request: &WholeRequest,
    ) -> Result<Option<UpstreamStatus>, Refusal> {
        let list = request.at(Method::GET, Uri::from_static("/v1/upstreams"));
        let of_shard: Vec<UpstreamStatus> = read(&self.ask_whole(shard, &list).await?)?;
        let Some(found) = of_shard.iter().find(|upstream| id_in_sum(&upstream.url) == id) else {
            return Ok(None);
        };
        let Ok(path) = format!("/v1/upstreams/{}", found.id).parse() else { return Ok(None) };
        read(&self.ask_whole(shard, &request.at(Method::DELETE, path)).await?).map(Some)
    }
}

impl WholeRequest {
    fn with_body(&self, body: Bytes) -> Self {
        let mut parts = self.parts.clone();
        parts.headers.remove(header::CONTENT_LENGTH);
        Self { parts, body }
    }

    /// Returns a request of the same client without a body.
    fn at(&self, method: Method, path: Uri) -> Self {
        let mut request = self.with_body(Bytes::new());
        (request.parts.method, request.parts.uri) = (method, path);
        request
    }
}

/// Adds up the policy of all shards.
///
/// # Errors
/// Shards have different versions.
pub(super) fn policy(answers: &[WholeAnswer]) -> Result<Json<PolicyStatus>, Refusal> {
    let of_shards: Vec<PolicyStatus> = answers.iter().map(read).collect::<Result<_, _>>()?;
    let Some(first) = of_shards.first() else {
        return Err(super::unavailable("the cluster has no shard").into());
    };
    if let Some(other) = of_shards.iter().position(|other| other.current != first.current) {
        let named = |of: &PolicyStatus| {
            let label = of.current.label.as_deref().unwrap_or("without a label");
            format!("version {} ({label})", of.current.version)
        };
        let message = format!(
            "shard 0 has policy {}, and shard {other} has {}: a change is under way or did not reach all shards; repeat it",
            named(first),
            of_shards.get(other).map(named).unwrap_or_default()
        );
        return Err(super::unavailable(message).into());
    }
    Ok(Json(PolicyStatus {
        paused: of_shards.iter().all(|shard| shard.paused),
        in_flight: of_shards.iter().map(|shard| shard.in_flight).sum(),
        held: of_shards.iter().map(|shard| shard.held).sum(),
        ..first.clone()
    }))
}

/// Adds up the upstreams of all shards by their URL.
pub(super) fn upstreams(of_shards: Vec<UpstreamStatus>) -> Vec<UpstreamStatus> {
    let mut sums: BTreeMap<String, UpstreamStatus> = BTreeMap::new();
    for upstream in of_shards {
        match sums.get_mut(&upstream.url) {
            None => {
                let id = id_in_sum(&upstream.url);
                sums.insert(upstream.url.clone(), UpstreamStatus { id, ..upstream });
            }
            Some(sum) => {
                sum.in_flight += upstream.in_flight;
                sum.trials += upstream.trials;
                // An upstream that one shard does not use is not healthy for the cluster.
                if sum.state == UpstreamState::Healthy {
                    (sum.state, sum.reason) = (upstream.state, upstream.reason);
                }
            }
        }
    }
    sums.into_values().collect()
}

/// The id of an upstream in a sum: 53 bits of the hash of its URL, which JSON numbers of all clients hold exactly.
fn id_in_sum(url: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(url).into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 11
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer(version: i32, paused: bool) -> WholeAnswer {
        let label = format!("step-{version}");
        let versions = json!([{"version": version, "label": label}]);
        let body: Value = json!({
            "version": version, "label": label, "paused": paused, "in_flight": 2, "held": 1, "versions": versions,
        });
        WholeAnswer { headers: http::HeaderMap::new(), body: body.to_string().into() }
    }

    #[test]
    fn calls_of_all_shards_are_added_and_a_pause_is_one_of_all() {
        let Json(sum) = policy(&[answer(1, true), answer(1, true)]).unwrap();
        assert!(sum.paused && (sum.in_flight, sum.held) == (4, 2));
        let Json(sum) = policy(&[answer(1, true), answer(1, false)]).unwrap();
        assert!(!sum.paused);
        let refused = policy(&[answer(1, true), answer(2, true)]).unwrap_err();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn an_upstream_has_one_id_for_all_shards() {
        let of = |id: u64, url: &str, state: UpstreamState| UpstreamStatus {
            id,
            url: url.to_owned(),
            state,
            reason: None,
            in_flight: 1,
            trials: 2,
            models: Vec::new(),
            version: 0,
            kv_cache: None,
        };
        let sums = upstreams(vec![
            of(0, "http://a", UpstreamState::Healthy),
            of(1, "http://b", UpstreamState::Healthy),
            of(7, "http://a", UpstreamState::Ejected),
        ]);
        let [a, b] = &sums[..] else { panic!("{sums:?}") };
        assert_eq!(
            (a.id, a.in_flight, a.trials, a.state),
            (id_in_sum("http://a"), 2, 4, UpstreamState::Ejected)
        );
        assert_eq!((b.id, b.state), (id_in_sum("http://b"), UpstreamState::Healthy));
    }
}

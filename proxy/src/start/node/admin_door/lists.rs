//! Lists and sums over all shards.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header;
use serde::de::DeserializeOwned;

use super::placement::Sum;
use super::{AdminDoor, Refusal, WholeAnswer, WholeRequest};
use crate::admin_plane::error::AdminError;
use crate::admin_plane::paged::{Paged, page_size};
use crate::api::{CauseFigures, Cost, GroupStatus, TrialStatus};

impl AdminDoor {
    pub(super) async fn sum(&self, sum: Sum, request: Request) -> Result<Response, Refusal> {
        let request = WholeRequest::read(request).await?;
        let answers = self.ask_all(&request).await?;
        match sum {
            Sum::Trials => {
                let has_more = answers.iter().any(|answer| answer.headers.contains_key(header::LINK));
                let limit = limit(request.parts.uri.query());
                Ok(page(items(&answers)?, has_more, limit).into_response())
            }
            Sum::Groups => Ok(Json(groups(items(&answers)?)).into_response()),
            Sum::Causes => Ok(Json(causes(items(&answers)?)).into_response()),
            Sum::Upstreams => Ok(Json(super::everywhere::upstreams(items(&answers)?)).into_response()),
            Sum::Policy => super::everywhere::policy(&answers).map(IntoResponse::into_response),
        }
    }
}

/// Reads a JSON answer of a shard.
///
/// # Errors
/// The shard has another version of rolltap with other members.
pub(super) fn read<T: DeserializeOwned>(answer: &WholeAnswer) -> Result<T, Refusal> {
    serde_json::from_slice(&answer.body).map_err(|error| {
        let message =
            format!("the answer of a shard cannot be read: {error}; all nodes need the same rolltap");
        AdminError::internal(message).into()
    })
}

/// Reads the lists of all shards, one after the other.
fn items<T: DeserializeOwned>(answers: &[WholeAnswer]) -> Result<Vec<T>, Refusal> {
    let lists: Vec<Vec<T>> = answers.iter().map(read).collect::<Result<_, _>>()?;
    Ok(lists.into_iter().flatten().collect())
}

/// Returns the limit of a page. The shards have checked the query.
fn limit(query: Option<&str>) -> NonZeroUsize {
    let pairs: Vec<(String, String)> =
        serde_urlencoded::from_str(query.unwrap_or_default()).unwrap_or_default();
    let given = pairs.iter().find(|(name, _)| name == "limit").and_then(|(_, value)| value.parse().ok());
    given.unwrap_or_else(page_size)
}

/// Makes one page of the pages of all shards, which have the same beginning and the same limit.
fn page(mut trials: Vec<TrialStatus>, has_more: bool, limit: NonZeroUsize) -> Paged<TrialStatus> {
    trials.sort_by(|one, other| one.trial_id.cmp(&other.trial_id));
    let has_more = has_more || trials.len() > limit.get();
    trials.truncate(limit.get());
    let last = trials.last().filter(|_| has_more);
    let next = last.map(|trial| format!("/v1/trials?limit={limit}&after={}", trial.trial_id));
    Paged { items: trials, next }
}

fn groups(mut groups: Vec<GroupStatus>) -> Vec<GroupStatus> {
    groups.sort_by(|one, other| one.group_id.cmp(&other.group_id));
    groups
}

fn causes(of_shards: Vec<CauseFigures>) -> Vec<CauseFigures> {
    let mut sums: BTreeMap<_, (Cost, u64)> = BTreeMap::new();
    for CauseFigures { agent, model, cause, cost, trials } in of_shards {
        let (sum, count) = sums.entry((agent, model, cause)).or_default();
        sum.add(cost);
        *count += trials;
    }
    let figures = sums.into_iter();
    figures
        .map(|((agent, model, cause), (cost, trials))| CauseFigures { agent, model, cause, cost, trials })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn answer(body: &serde_json::Value) -> WholeAnswer {
        WholeAnswer { headers: http::HeaderMap::new(), body: body.to_string().into() }
    }

    #[test]
    fn the_figures_of_a_cause_are_added() {
        let of = |model: &str, branches: u64| json!({"agent": "a", "model": model, "cause": "compaction", "branches": branches, "tokens": 10, "trials": 1});
        let answers = [answer(&json!([of("m", 1)])), answer(&json!([of("l", 5), of("m", 2)]))];
        let sums = causes(items(&answers).unwrap());
        let figures: Vec<_> = sums.iter().map(|sum| (&*sum.model, sum.cost.branches, sum.trials)).collect();
        assert_eq!(figures, [("l", 5, 1), ("m", 3, 2)]);
    }

    #[test]
    fn the_limit_is_that_of_the_query() {
        assert_eq!(limit(None), page_size());
        assert_eq!(limit(Some("after=b&limit=17")).get(), 17);
    }

    proptest! {
        #[test]
        fn a_foreign_answer_never_panics(body in ".*") {
            let answer = WholeAnswer { headers: http::HeaderMap::new(), body: body.into_bytes().into() };
            let _ = items::<TrialStatus>(std::slice::from_ref(&answer));
            let _ = items::<GroupStatus>(&[answer]);
        }
    }
}

//! Which shards a request of the admin plane concerns.

use http::Method;
use percent_encoding::percent_decode_str;

use crate::common::shard::ShardCount;

/// The shards that a request concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// Any shard: all give the same answer.
    Any,
    /// This shard.
    Shard(u32),
    /// The shard of a new trial, which the body of the request decides.
    Opening,
    /// The shard that has this trial.
    Trial(String),
    /// The sum of the answers of all shards.
    Sum(Sum),
    /// A change at all shards.
    Change(Change),
    /// The feeds of all shards, merged.
    Feed,
}

/// What a sum is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    Trials,
    Groups,
    Causes,
    Upstreams,
    Policy,
}

/// A change at all shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    SetPolicy,
    Pause,
    Resume,
    AddUpstream,
    /// The upstream with this id of a sum.
    RemoveUpstream(u64),
}

impl Placement {
    /// Returns the placement of a request. A path that does not exist gets its error from any shard.
    pub(super) fn of(method: &Method, path: &str, count: ShardCount) -> Self {
        let segments: Vec<&str> = path.split('/').collect();
        match (method, segments.as_slice()) {
            (&Method::GET, ["", "v1", "trials"]) => Self::Sum(Sum::Trials),
            (&Method::POST, ["", "v1", "trials"]) => Self::Opening,
            (_, ["", "v1", "trials", id, ..]) => Self::Trial(decoded(id)),
            (&Method::GET, ["", "v1", "rollouts"]) => Self::Feed,
            (&Method::GET, ["", "v1", "groups"]) => Self::Sum(Sum::Groups),
            (_, ["", "v1", "groups", id, ..]) => Self::Shard(count.of_group(&decoded(id))),
            (&Method::GET, ["", "v1", "causes"]) => Self::Sum(Sum::Causes),
            (&Method::GET, ["", "v1", "policy"]) => Self::Sum(Sum::Policy),
            (&Method::POST, ["", "v1", "policy"]) => Self::Change(Change::SetPolicy),
            (&Method::POST, ["", "v1", "policy", "pause"]) => Self::Change(Change::Pause),
            (&Method::POST, ["", "v1", "policy", "resume"]) => Self::Change(Change::Resume),
            (&Method::GET, ["", "v1", "upstreams"]) => Self::Sum(Sum::Upstreams),
            (&Method::POST, ["", "v1", "upstreams"]) => Self::Change(Change::AddUpstream),
            (&Method::DELETE, ["", "v1", "upstreams", id]) => {
                id.parse().map_or(Self::Any, |id| Self::Change(Change::RemoveUpstream(id)))
            }
            _ => Self::Any,
        }
    }
}

fn decoded(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_concerns_the_shards_that_have_what_it_names() {
        let count = ShardCount::new(4);
        let of = |method: &str, path: &str| Placement::of(&method.parse().unwrap(), path, count);
        assert_eq!(of("POST", "/v1/trials"), Placement::Opening);
        assert_eq!(of("GET", "/v1/trials"), Placement::Sum(Sum::Trials));
        for (method, path) in
            [("GET", "/v1/trials/a"), ("HEAD", "/v1/trials/a"), ("PUT", "/v1/trials/a/reward")]
        {
            assert_eq!(of(method, path), Placement::Trial("a".to_owned()));
        }
        let group = Placement::Shard(count.of_group("a b/c"));
        assert_eq!(of("GET", "/v1/groups/a%20b%2Fc"), group);
        assert_eq!(of("POST", "/v1/groups/a%20b%2Fc/close"), group);
        assert_eq!(of("DELETE", "/v1/upstreams/17"), Placement::Change(Change::RemoveUpstream(17)));
        for (method, path) in [
            ("GET", "/metrics"),
            ("POST", "/v1/submissions"),
            ("DELETE", "/v1/upstreams/x"),
            ("GET", "/nowhere"),
            ("GET", ""),
        ] {
            assert_eq!(of(method, path), Placement::Any, "{method} {path}");
        }
    }
}

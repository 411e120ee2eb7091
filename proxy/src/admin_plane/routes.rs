//! Every route of the admin plane. The router and the OpenAPI document are both built from these lists.

use super::endpoint::{Endpoint, delete, get, post, put};
use super::{groups, operations, policy, rollouts, trial_reads, trials, upstreams};

/// The endpoints that need the token, if the proxy has one.
pub(super) fn guarded() -> Vec<Endpoint> {
    [trial_endpoints(), feed_endpoints(), upstream_endpoints()].into_iter().flatten().collect()
}

/// The endpoints that need no token. Health and numbers reveal nothing about trials, and scrapers rarely have a token.
pub(super) fn unguarded() -> Vec<Endpoint> {
    vec![
        get("/healthz", "live", "Answers while the proxy runs.", operations::live),
        get(
            "/readyz",
            "ready",
            "Answers 503, with the reason, while the proxy drains or cannot write captures.",
            operations::ready,
        ),
        get("/metrics", "metrics", "Returns the metrics in the OpenMetrics format.", operations::metrics),
    ]
}

fn trial_endpoints() -> Vec<Endpoint> {
    vec![
        post(
            "/v1/trials",
            "open_trial",
            "Opens a trial.\nA closed group, a second trial at the same attempt of a sample, a `trial_id` that exists, \
             and a `group_size` or `group_deadline` that differs from that of the group are a 409.",
            trials::open,
        ),
        get("/v1/trials", "list_trials", "Returns one page of trials, sorted by id.", trial_reads::list),
        get("/v1/trials/{id}", "get_trial", "Returns the status of a trial.", trial_reads::status),
        post(
            "/v1/trials/{id}/seal",
            "seal_trial",
            "Ends a trial.\nThe proxy cancels and records its calls in flight before it answers. Idempotent. A 503 \
             means that the seal is not written and does not count.",
            trials::seal,
        ),
        put(
            "/v1/trials/{id}/reward",
            "reward_trial",
            "Sets the reward of a trial.\nIdempotent for equal bodies; another body is a 409, as is a reward after its \
             deadline. A 503 means that the reward is not written and does not count.",
            trials::reward,
        ),
        get(
            "/v1/trials/{id}/calls",
            "get_calls",
            "Returns the calls of a trial in order of their start.",
            trial_reads::calls,
        ),
        get(
            "/v1/trials/{id}/rollout",
            "get_rollout",
            "Returns the rows of a sealed trial, one per branch.\nA 409 while the trial is open. With `prepare`, one \
             prepared trial.",
            trial_reads::rollout,
        ),
    ]
}

fn feed_endpoints() -> Vec<Endpoint> {
    vec![
        get(
            "/v1/rollouts",
            "read_feed",
            "Returns complete trials in the order in which they became complete.\nA malformed cursor, one of the other \
             kind of reading, and one beyond the end of the feed are a 400. A cursor before trials that retention \
             removed is a 410. An answer that breaks off is incomplete: continue after the last cursor.",
            rollouts::rollouts,
        ),
        get("/v1/groups", "list_groups", "Returns all groups.", groups::list),
        get("/v1/groups/{id}", "get_group", "Returns the status of a group.", groups::status),
        post(
            "/v1/groups/{id}/close",
            "close_group",
            "Closes a group.\nIt accepts no further trial. Idempotent.",
            groups::close,
        ),
        get(
            "/v1/causes",
            "get_causes",
            "Returns why branches started, summed over all trials by agent, model and cause.",
            trial_reads::causes,
        ),
    ]
}

fn upstream_endpoints() -> Vec<Endpoint> {
    vec![
        get("/v1/upstreams", "list_upstreams", "Returns the replicas of the model.", upstreams::list),
        post(
            "/v1/upstreams",
            "add_upstream",
            "Adds a replica.\nA URL that is already a replica is a 409.",
            upstreams::add,
        ),
        delete(
            "/v1/upstreams/{id}",
            "remove_upstream",
            "Drains a replica.\nIt gets no new trial or call, and disappears after its calls in flight.",
            upstreams::remove,
        ),
        get(
            "/v1/policy",
            "get_policy",
            "Returns the policy version and the calls in flight.",
            policy::status,
        ),
        post(
            "/v1/policy",
            "set_policy",
            "Names the weights that all upstreams have from now on.\nA new label is a new version; a known label is \
             its earlier version.",
            policy::set,
        ),
        post(
            "/v1/policy/pause",
            "pause_policy",
            "Holds new calls before they go upstream.\nWith `wait: true` it answers once no call is in flight.",
            policy::pause,
        ),
        post("/v1/policy/resume", "resume_policy", "Releases held calls.", policy::resume),
    ]
}

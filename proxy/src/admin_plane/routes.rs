//! Every route of the admin plane, with the role that it needs. The router and the OpenAPI document are both built from
//! this list.
//!
//! A GET needs the role `read`, and a HEAD the role `open`: whoever opens trials may know which names are taken. Each other
//! request needs the role of the thing that it changes. The key of a trial suffices to read the calls and answers of that
//! trial, so that its runner needs no role for all trials.

use super::endpoint::{Access, Description, Endpoint, delete, get, head, post, put};
use super::role::AdminRole;
use super::{groups, operations, policy, rollouts, submissions, trial_reads, trials, upstreams};

const OPEN: Access = Access::Role(AdminRole::Open);
const REWARD: Access = Access::Role(AdminRole::Reward);
const READ: Access = Access::Role(AdminRole::Read);
const READ_OWN: Access = Access::RoleOrKey(AdminRole::Read);
const OPERATE: Access = Access::Role(AdminRole::Operate);
/// Health and numbers reveal nothing about trials, and scrapers rarely have a token.
const EVERYONE: Access = Access::Everyone;

/// All endpoints.
pub(super) fn all<D: Description>() -> Vec<Endpoint<D>> {
    [trial_endpoints(), feed_endpoints(), submission_endpoints(), upstream_endpoints(), health_endpoints()]
        .into_iter()
        .flatten()
        .collect()
}

fn health_endpoints<D: Description>() -> Vec<Endpoint<D>> {
    vec![
        get(EVERYONE, "/healthz", "live", "Answers while the proxy runs.", operations::live),
        get(
            EVERYONE,
            "/readyz",
            "ready",
            "Answers 503, with the reason, while the proxy drains or cannot write captures.",
            operations::ready,
        ),
        get(
            EVERYONE,
            "/metrics",
            "metrics",
            "Returns the metrics in the OpenMetrics format.",
            operations::metrics,
        ),
    ]
}

fn trial_endpoints<D: Description>() -> Vec<Endpoint<D>> {
    vec![
        post(
            OPEN, "/v1/trials",
            "open_trial",
            "Opens a trial.\nA closed group, a second trial at the same attempt of a sample, a `trial_id` that exists, \
             and a `group_size` or `group_deadline` that differs from that of the group are a 409.",
            trials::open,
        ),
        get(READ, "/v1/trials", "list_trials", "Returns one page of trials, sorted by id.", trial_reads::list),
        get(READ, "/v1/trials/{id}", "get_trial", "Returns the status of a trial.", trial_reads::status),
        head(
            OPEN, "/v1/trials/{id}",
            "has_trial",
            "Answers 200 if there is a trial of this name, and 404 if a trial can be opened under it.",
            trials::exists,
        ),
        post(
            REWARD, "/v1/trials/{id}/seal",
            "seal_trial",
            "Ends a trial.\nThe proxy cancels and records its calls in flight before it answers. Idempotent. A 503 \
             means that the seal is not written and does not count.",
            trials::seal,
        ),
        put(
            REWARD, "/v1/trials/{id}/reward",
            "reward_trial",
            "Sets the reward of a trial.\nIdempotent for equal bodies; another body is a 409, as is a reward after its \
             deadline. With `version`, a complete trial gets the reward of a later verification beside its own. A 503 \
             means that the reward is not written and does not count.",
            trials::reward,
        ),
        get(
            READ_OWN, "/v1/trials/{id}/calls",
            "get_calls",
            "Returns the calls of a trial in order of their start.\nWith `messages=true`, each call has its conversation: \
             `messages`, `tools` and `answers`.",
            trial_reads::calls,
        )
        .recorded(),
        get(
            READ_OWN, "/v1/trials/{id}/answers",
            "get_answers",
            "Returns the recorded answers of a trial as chat messages, in order of the calls' start.\nThe answers of a \
             call are recorded when it ends. Answers without recorded messages are absent: those of completions, and \
             those of trials with `history: off`.",
            trial_reads::answers,
        )
        .recorded(),
        get(
            READ, "/v1/trials/{id}/rollout",
            "get_rollout",
            "Returns the rows of a sealed trial, one per branch.\nA 409 while the trial is open. With `messages=true`, \
             the calls of the rows have their messages. With `prepare`, one prepared trial.",
            trial_reads::rollout,
        )
        .recorded(),
    ]
}

fn feed_endpoints<D: Description>() -> Vec<Endpoint<D>> {
    vec![
        get(
            READ, "/v1/rollouts",
            "read_feed",
            "Returns complete trials in the order in which they became complete.\nA malformed cursor, one of the other \
             kind of reading, and one beyond the end of the feed are a 400. A cursor before trials that retention \
             removed is a 410. A `reward_version` that no trial has is a 404. An answer that breaks off is incomplete: \
             continue after the last cursor.",
            rollouts::rollouts,
        )
        .recorded(),
        get(READ, "/v1/groups", "list_groups", "Returns all groups.", groups::list),
        get(READ, "/v1/groups/{id}", "get_group", "Returns the status of a group.", groups::status),
        post(
            OPEN, "/v1/groups/{id}/close",
            "close_group",
            "Closes a group.\nIt accepts no further trial. With `drop: true`, readers of closed groups do not get it. Idempotent: \
             the first cause counts.",
            groups::close,
        ),
        get(
            READ, "/v1/causes",
            "get_causes",
            "Returns why branches started, summed over all trials by agent, model and cause.",
            trial_reads::causes,
        ),
    ]
}

fn submission_endpoints<D: Description>() -> Vec<Endpoint<D>> {
    vec![
        post(
            OPEN,
            "/v1/submissions",
            "submit",
            "Asks the service to sample groups.\nThe answer means that the submission is durable. A full queue is a 429 \
             with `Retry-After`. Another request under the same `idempotency_key` is a 409. A proxy that is not \
             `rolltap serve` answers 404.",
            submissions::submit,
        ),
        get(
            READ,
            "/v1/submissions",
            "list_submissions",
            "Returns one page of submissions, sorted by name, so the oldest first.",
            submissions::list,
        ),
        get(READ, "/v1/submissions/{id}", "get_submission", "Returns a submission.", submissions::read),
        post(
            OPEN,
            "/v1/submissions/{id}/cancel",
            "cancel_submission",
            "Cancels a submission.\nIts running trials are stopped and do not count, and its groups close with the samples \
             that had ended. Idempotent.",
            submissions::cancel,
        ),
        post(
            OPEN,
            "/v1/submissions/cancel",
            "cancel_submissions",
            "Cancels all submissions of a policy version, and returns those that had not ended.",
            submissions::cancel_version,
        ),
    ]
}

fn upstream_endpoints<D: Description>() -> Vec<Endpoint<D>> {
    vec![
        get(READ, "/v1/upstreams", "list_upstreams", "Returns the replicas of the model.", upstreams::list),
        post(
            OPERATE,
            "/v1/upstreams",
            "add_upstream",
            "Adds a replica.\nA URL that is already a replica is a 409.",
            upstreams::add,
        ),
        delete(
            OPERATE,
            "/v1/upstreams/{id}",
            "remove_upstream",
            "Drains a replica.\nIt gets no new trial or call, and disappears after its calls in flight.",
            upstreams::remove,
        ),
        get(
            READ,
            "/v1/policy",
            "get_policy",
            "Returns the policy version and the calls in flight.",
            policy::status,
        ),
        post(
            OPERATE,
            "/v1/policy",
            "set_policy",
            "Names the weights that all upstreams have from now on.\nA new label is a new version; a known label is \
             its earlier version.",
            policy::set,
        ),
        post(
            OPERATE,
            "/v1/policy/pause",
            "pause_policy",
            "Holds new calls before they go upstream.\nWith `wait: true` it answers once no call is in flight.",
            policy::pause,
        ),
        post(OPERATE, "/v1/policy/resume", "resume_policy", "Releases held calls.", policy::resume),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The roles of all routes, and whether the key of a trial suffices. A new route needs a line here and in
    /// `docs/reference/admin-api.md`.
    const ROLES: [(&str, &str, &str); 29] = [
        ("POST", "/v1/trials", "open"),
        ("GET", "/v1/trials", "read"),
        ("GET", "/v1/trials/{id}", "read"),
        ("HEAD", "/v1/trials/{id}", "open"),
        ("POST", "/v1/trials/{id}/seal", "reward"),
        ("PUT", "/v1/trials/{id}/reward", "reward"),
        ("GET", "/v1/trials/{id}/calls", "read or key"),
        ("GET", "/v1/trials/{id}/answers", "read or key"),
        ("GET", "/v1/trials/{id}/rollout", "read"),
        ("GET", "/v1/rollouts", "read"),
        ("GET", "/v1/groups", "read"),
        ("GET", "/v1/groups/{id}", "read"),
        ("POST", "/v1/groups/{id}/close", "open"),
        ("GET", "/v1/causes", "read"),
        ("POST", "/v1/submissions", "open"),
        ("GET", "/v1/submissions", "read"),
        ("GET", "/v1/submissions/{id}", "read"),
        ("POST", "/v1/submissions/{id}/cancel", "open"),
        ("POST", "/v1/submissions/cancel", "open"),
        ("GET", "/v1/upstreams", "read"),
        ("POST", "/v1/upstreams", "operate"),
        ("DELETE", "/v1/upstreams/{id}", "operate"),
        ("GET", "/v1/policy", "read"),
        ("POST", "/v1/policy", "operate"),
        ("POST", "/v1/policy/pause", "operate"),
        ("POST", "/v1/policy/resume", "operate"),
        ("GET", "/healthz", ""),
        ("GET", "/readyz", ""),
        ("GET", "/metrics", ""),
    ];

    #[test]
    fn each_route_has_the_role_of_this_list_and_of_the_page() {
        let page = include_str!("../../../docs/reference/admin-api.md");
        let mut found = Vec::new();
        for endpoint in all::<()>() {
            let role = match endpoint.access {
                Access::Everyone => String::new(),
                Access::Role(role) => role.to_string(),
                Access::RoleOrKey(role) => format!("{role} or key"),
            };
            let named = format!("`{} {}", endpoint.method, endpoint.path);
            let row = page.lines().find(|line| line.starts_with('|') && line.contains(&named));
            let row = row.unwrap_or_else(|| panic!("admin-api.md has no row with {named}"));
            let cell = row.split('|').nth(2).map(|cell| cell.trim().replace('`', ""));
            assert_eq!(cell.as_ref(), Some(&role), "{row}");
            found.push((endpoint.method, endpoint.path, role));
        }
        assert_eq!(found, ROLES.map(|(method, path, role)| (method, path, role.to_owned())));
    }

    #[test]
    fn every_request_that_changes_something_or_reads_rollouts_is_recorded() {
        for endpoint in all::<()>() {
            let reads_rollouts = [
                "/v1/rollouts",
                "/v1/trials/{id}/calls",
                "/v1/trials/{id}/answers",
                "/v1/trials/{id}/rollout",
            ];
            let expected =
                !["GET", "HEAD"].contains(&endpoint.method) || reads_rollouts.contains(&endpoint.path);
            assert_eq!(endpoint.is_recorded(), expected, "{} {}", endpoint.method, endpoint.path);
            // A request without a role has no caller to record.
            assert!(!expected || endpoint.access != Access::Everyone, "{}", endpoint.path);
        }
    }
}

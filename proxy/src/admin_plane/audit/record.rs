//! One line of the audit log.

use std::net::SocketAddr;

use axum::extract::RawPathParams;
use jiff::Timestamp;
use rolltap_rollout::ids::{GroupId, TrialId};
use serde::Serialize;

use crate::admin_plane::role::AdminRole;
use crate::admin_plane::tokens::TokenName;
use crate::common::refusal_counts::DenialCause;

/// An action at the admin plane. It names no token, no body and no reward.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AuditRecord {
    pub(crate) time: Timestamp,
    #[serde(flatten)]
    pub(crate) caller: Caller,
    /// The role that the route needs.
    pub(crate) role: AdminRole,
    pub(crate) method: &'static str,
    /// The pattern of the path, such as `/v1/trials/{id}/seal`.
    pub(crate) route: &'static str,
    #[serde(flatten)]
    pub(crate) subject: Subject,
    /// The status of the answer. `None` if the client left before the answer: the action may have had its effect.
    pub(crate) status: Option<u16>,
    /// The address of the client, or of the load balancer in between.
    pub(crate) source: Option<SocketAddr>,
    /// Why the request was denied. Absent if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) denied: Option<DenialCause>,
    /// The number of denied requests since the last record of one, which have no record of their own.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) suppressed: u64,
}

/// The client of an action, as far as the client is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Caller {
    /// The name of the token. `None` if the proxy needs none, or if no valid token was sent.
    pub(crate) token: Option<TokenName>,
    /// The trial whose key was sent instead of a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_of_trial: Option<TrialId>,
}

/// The object of an action. A handler adds it to the extensions of its answer if the path does not name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Subject {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trial_id: Option<TrialId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group_id: Option<GroupId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_id: Option<u64>,
}

impl AuditRecord {
    /// Returns the record as a line of JSON with its end.
    pub(super) fn line(&self) -> Vec<u8> {
        // A record of these types always serialises. An empty line would show a defect here.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

impl Caller {
    /// Returns the client with the token of this name.
    pub(crate) fn with_token(name: TokenName) -> Self {
        Self { token: Some(name), key_of_trial: None }
    }

    /// Returns the client with the key of this trial.
    pub(crate) fn with_key_of(trial: TrialId) -> Self {
        Self { token: None, key_of_trial: Some(trial) }
    }
}

impl Subject {
    /// Returns the object that the path of a route names. An id that breaks the rules of its kind is left out, so that a
    /// stranger cannot write any text into the log.
    pub(crate) fn of_path(route: &str, parameters: Option<&RawPathParams>) -> Self {
        let id = parameters.and_then(|parameters| parameters.iter().find(|(name, _)| *name == "id"));
        let Some((_, id)) = id else { return Self::default() };
        match route.split('/').nth(2) {
            Some("trials") => Self { trial_id: TrialId::new(id).ok(), ..Self::default() },
            Some("groups") => Self { group_id: GroupId::new(id).ok(), ..Self::default() },
            Some("upstreams") => Self { upstream_id: id.parse().ok(), ..Self::default() },
            _ => Self::default(),
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

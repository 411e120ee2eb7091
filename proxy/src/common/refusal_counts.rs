//! Counts refused clients of both planes, and the state of the parts that decide about clients of the admin plane.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::Serialize;

/// The counters. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusalCounts {
    calls: Family<Code, Counter>,
    connections: Family<Cause, Counter>,
    admin: Family<Cause, Counter>,
    admin_tokens_stale: Gauge,
    audit_failing: Gauge,
    audit_lost: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

/// Why a connection of an agent was closed or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionCause {
    /// It had sent no request with a valid key, and another connection needed its place.
    Silent,
    /// Its source address has as many connections as it may.
    Address,
}

/// Why a request to the admin plane was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DenialCause {
    /// The token is missing, wrong or expired.
    Token,
    /// The token lacks the role of the route, or the key is that of another trial.
    Role,
    /// The client is a web page, or used a name other than that of this machine.
    WebPage,
}

impl ConnectionCause {
    const ALL: [Self; 2] = [Self::Silent, Self::Address];

    fn as_str(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Address => "address",
        }
    }
}

impl DenialCause {
    const ALL: [Self; 3] = [Self::Token, Self::Role, Self::WebPage];

    fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Role => "role",
            Self::WebPage => "web_page",
        }
    }
}

impl RefusalCounts {
    pub(crate) fn register(&self, registry: &mut Registry) {
        // A series that begins at 0 lets an alert see its first increase.
        for cause in ConnectionCause::ALL.map(ConnectionCause::as_str) {
            drop(self.connections.get_or_create(&Cause { cause }));
        }
        for cause in DenialCause::ALL.map(DenialCause::as_str) {
            drop(self.admin.get_or_create(&Cause { cause }));
        }
        registry.register(
            "calls_refused",
            "Requests of agents that the proxy answered with an error of its own, by the code of the error",
            self.calls.clone(),
        );
        registry.register(
            "connections_refused",
            "Connections of agents that were closed or refused because of a limit",
            self.connections.clone(),
        );
        registry.register(
            "admin_denied",
            "Requests to the admin plane without a valid token or without the role that they need",
            self.admin.clone(),
        );
        registry.register(
            "admin_tokens_stale",
            "1 while the file of --admin-tokens cannot be used, so that the tokens of before are valid",
            self.admin_tokens_stale.clone(),
        );
        registry.register(
            "audit_log_failing",
            "1 while the audit log cannot be written, so that the actions that belong in it are refused",
            self.audit_failing.clone(),
        );
        registry.register(
            "audit_records_lost",
            "Records of denied requests that are not in the audit log, because it could not be written",
            self.audit_lost.clone(),
        );
    }

    /// Counts a request that the agent plane refused. `code` is the code of the error.
    pub(crate) fn call(&self, code: &'static str) {
        self.calls.get_or_create(&Code { code }).inc();
    }

    /// Counts a connection of an agent that was refused or closed.
    pub(crate) fn connection(&self, cause: ConnectionCause) {
        self.connections.get_or_create(&Cause { cause: cause.as_str() }).inc();
    }

    /// Counts a denied request to the admin plane.
    pub(crate) fn admin(&self, cause: DenialCause) {
        self.admin.get_or_create(&Cause { cause: cause.as_str() }).inc();
    }

    /// Sets whether the file of tokens cannot be used.
    pub(crate) fn admin_tokens_are_stale(&self, is_stale: bool) {
        self.admin_tokens_stale.set(is_stale.into());
    }

    /// Sets whether the audit log cannot be written.
    pub(crate) fn audit_is_failing(&self, is_failing: bool) {
        self.audit_failing.set(is_failing.into());
    }

    /// Counts a record that is not in the audit log.
    pub(crate) fn audit_record_lost(&self) {
        self.audit_lost.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::metrics::Metrics;

    #[test]
    fn each_refusal_is_in_the_text_of_the_metrics() {
        let metrics = Metrics::new();
        let counts = metrics.refusals();
        counts.call("trial_limit_reached");
        ConnectionCause::ALL.into_iter().for_each(|cause| counts.connection(cause));
        DenialCause::ALL.into_iter().for_each(|cause| counts.admin(cause));
        counts.admin_tokens_are_stale(true);
        counts.audit_is_failing(true);
        counts.audit_record_lost();
        let text = metrics.text().unwrap();
        for line in [
            "rolltap_calls_refused_total{code=\"trial_limit_reached\"} 1",
            "rolltap_connections_refused_total{cause=\"silent\"} 1",
            "rolltap_connections_refused_total{cause=\"address\"} 1",
            "rolltap_admin_denied_total{cause=\"token\"} 1",
            "rolltap_admin_denied_total{cause=\"role\"} 1",
            "rolltap_admin_denied_total{cause=\"web_page\"} 1",
            "rolltap_admin_tokens_stale 1",
            "rolltap_audit_log_failing 1",
            "rolltap_audit_records_lost_total 1",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} not in {text}");
        }
        counts.admin_tokens_are_stale(false);
        assert!(metrics.text().unwrap().contains("rolltap_admin_tokens_stale 0"));
    }
}

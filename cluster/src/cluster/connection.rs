//! The connection to the NATS servers, and what the user of a connection may not do.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::{ConnectOptions, Event, ServerAddr, ServerError, jetstream};
use percent_encoding::percent_decode_str;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::nats_thread::NatsThread;
use super::{ClusterError, ClusterSettings, Nats};

/// The time in which NATS must answer a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The time in which a connection must be established at the start.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two attempts to reconnect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);
/// The time for which a violation may be the cause of an error. It is longer than any request waits.
const RECENT: Duration = Duration::from_secs(20);

/// The latest message of the server about a missing permission. The server does not answer such a request, so the request
/// itself ends with a timeout.
#[derive(Clone, Debug, Default)]
pub(super) struct Violations(Arc<Mutex<Option<(String, Instant)>>>);

impl Violations {
    /// Returns the latest violation if it may be the cause of a present error.
    pub(super) fn latest(&self) -> Option<String> {
        let latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        latest.as_ref().filter(|(_, at)| at.elapsed() < RECENT).map(|(text, _)| text.clone())
    }

    fn take(&self, event: &Event) {
        let Some(violation) = violation(event) else {
            return tracing::debug!(%event, "the connection to NATS changed");
        };
        let before = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace((violation.to_owned(), Instant::now()));
        // A request that is repeated violates the same permission each time.
        if before.is_none_or(|(text, _)| text != violation) {
            tracing::warn!(violation, "the user of NATS lacks a permission of its role");
        }
    }
}

/// Returns the text of a violation, like `Permissions Violation for Publish to "a.b"`.
fn violation(event: &Event) -> Option<&str> {
    let Event::ServerError(ServerError::Other(text)) = event else { return None };
    let text = text.trim_matches('\'');
    text.to_ascii_lowercase().starts_with("permissions violation").then_some(text)
}

impl Nats {
    /// Connects to one of the servers.
    pub(super) async fn dial(settings: &ClusterSettings) -> Result<Self, ClusterError> {
        let servers = shown(&settings.servers);
        let unreachable = |reason: String| ClusterError::Unreachable { servers: servers.clone(), reason };
        let violations = Violations::default();
        let (options, addresses) = (options(settings, violations.clone())?, settings.servers.clone());
        let thread = NatsThread::start().map_err(ClusterError::Thread)?;
        // The client starts its own tasks on the thread on which it connects.
        let connecting = thread.spawn(async move { options.connect(&addresses[..]).await });
        let connecting = AbortOnDropHandle::new(connecting);
        let client = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(connected)) => connected.map_err(|error| unreachable(error.to_string()))?,
            Ok(Err(panicked)) => return Err(unreachable(panicked.to_string())),
            Err(_) => return Err(unreachable(format!("no answer in {CONNECT_TIMEOUT:?}"))),
        };
        let context = jetstream::ContextBuilder::new().timeout(REQUEST_TIMEOUT).build(client);
        let (name, replicas) = (settings.name.clone(), settings.replicas);
        Ok(Self { context, thread, servers, name, replicas, violations })
    }
}

/// Returns the addresses without passwords.
fn shown(servers: &[ServerAddr]) -> String {
    let addresses: Vec<String> =
        servers.iter().map(|server| format!("{}:{}", server.host(), server.port())).collect();
    addresses.join(", ")
}

/// Returns the user and the password of an address. Both may have percent-encoded characters.
fn user(server: &ServerAddr) -> Option<(String, String)> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    Some((decoded(server.username()?), decoded(server.password().unwrap_or_default())))
}

fn options(settings: &ClusterSettings, violations: Violations) -> Result<ConnectOptions, ClusterError> {
    let mut options = ConnectOptions::new()
        .name("rolltap")
        .connection_timeout(CONNECT_TIMEOUT / 2)
        .request_timeout(Some(REQUEST_TIMEOUT))
        // The client gives up a server that has not answered three pings, before a lease expires.
        .ping_interval(Duration::from_secs(1))
        // The default grows to four seconds, which is as long as a lease.
        .reconnect_delay_callback(|attempts| if attempts == 0 { Duration::ZERO } else { RECONNECT_PAUSE })
        .event_callback(move |event| {
            violations.take(&event);
            async {}
        });
    // The client ignores the user of an address.
    if let Some((user, password)) = settings.servers.iter().find_map(user) {
        options = options.user_and_password(user, password);
    }
    if let Some(path) = &settings.credentials {
        let unreadable = |source| ClusterError::File { path: path.clone(), source };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        options = if text.contains("NATS USER JWT") {
            options.credentials(&text).map_err(unreadable)?
        } else {
            options.nkey(text.trim().to_owned())
        };
    }
    if let Some(path) = &settings.ca_file {
        options = options.add_root_certificates(path.clone());
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_passwords() {
        let servers = ["nats://user:secret@one:1".parse().unwrap(), "two".parse().unwrap()];
        assert_eq!(shown(&servers), "one:1, two:4222");
    }

    #[test]
    fn an_address_has_a_user_and_a_password() {
        let user_of = |url: &str| user(&url.parse().unwrap());
        assert_eq!(user_of("nats://node:a%40b@one:1"), Some(("node".to_owned(), "a@b".to_owned())));
        assert_eq!(user_of("nats://one:1"), None);
    }

    #[test]
    fn a_violation_is_remembered_and_other_events_are_not() {
        let violations = Violations::default();
        let error = |text: &str| Event::ServerError(ServerError::Other(text.to_owned()));
        for other in [Event::Connected, error("'Stale Connection'")] {
            violations.take(&other);
            assert_eq!(violations.latest(), None);
        }
        violations.take(&error("'Permissions Violation for Publish to \"a.b\"'"));
        assert_eq!(violations.latest().as_deref(), Some("Permissions Violation for Publish to \"a.b\""));
    }
}

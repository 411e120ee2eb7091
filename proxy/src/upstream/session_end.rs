//! Announces the end of sessions to servers that have a call for it, so that a server can free the state of the
//! session.
//!
//! vLLM's router has `POST /finish_session?session_id=ID`. vLLM itself answers 404.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use rolltap_rollout::ids::TrialId;
use tokio::sync::mpsc;

use super::replica::{Outgoing, Replica};
use super::session::UsedSessions;

/// The number of trials whose sessions can wait. The sessions of further trials are not announced, so that a server that is
/// slow to answer costs no memory.
const WAITING: usize = 1024;
/// The time within which a server must answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The end of all sessions of a trial.
#[derive(Debug)]
pub(super) struct SessionEnd {
    pub(super) replica: Arc<Replica>,
    pub(super) trial: TrialId,
    pub(super) sessions: UsedSessions,
}

/// Takes ends of sessions for a task that announces them one after the other.
#[derive(Debug)]
pub(super) struct SessionEnds(mpsc::Sender<SessionEnd>);

impl SessionEnds {
    /// Starts the task. It ends when this value is dropped.
    pub(super) fn start() -> Self {
        let (sender, mut ends) = mpsc::channel::<SessionEnd>(WAITING);
        tokio::spawn(async move {
            while let Some(end) = ends.recv().await {
                announce(&end).await;
            }
        });
        Self(sender)
    }

    /// Announces the end of a trial's sessions later, if its server may have a call for it.
    pub(super) fn add(&self, end: SessionEnd) {
        let is_needed = !end.sessions.is_empty() && end.replica.ends_sessions() && end.replica.takes_calls();
        if is_needed && self.0.try_send(end).is_err() {
            tracing::debug!("too many ends of sessions wait; this one is not announced");
        }
    }
}

async fn announce(SessionEnd { replica, trial, sessions }: &SessionEnd) {
    for session in sessions {
        if !replica.ends_sessions() {
            return;
        }
        let path = format!("/finish_session?session_id={}", session.id(trial));
        let (method, headers) = (Method::POST, &HeaderMap::new());
        let request = Outgoing { method, path: &path, headers, session: None, body: Bytes::new() };
        match replica.send(PATIENCE, &request).await {
            Ok(answer) if is_unknown(answer.status()) => replica.has_no_end_of_sessions(),
            Ok(_) => {}
            // The server most likely takes the other sessions of the trial no better.
            Err(failure) => {
                tracing::debug!(%failure, "the end of a session was not announced");
                return;
            }
        }
    }
}

/// Whether a server with this answer has no such call.
fn is_unknown(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::common::metrics::FlawCounts;
    use crate::upstream::policy::Policy;
    use crate::upstream::session::Session;

    /// Returns a server that answers each request with this status, and the number of its requests.
    async fn answering(status: &'static str) -> (Arc<Replica>, mpsc::UnboundedReceiver<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let _ = connection.read(&mut [0; 1024]).await;
                let _ = sender.send(());
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                let _ = connection.write_all(answer.as_bytes()).await;
            }
        });
        let policy = Arc::new(Policy::restored(&[]));
        let replica = Replica::new(0, url.parse().unwrap(), None, None, policy, FlawCounts::default());
        (Arc::new(replica), requests)
    }

    #[tokio::test]
    async fn a_server_without_a_call_for_it_is_asked_once() {
        for (status, is_asked_again) in
            [("404 Not Found", false), ("405 Method Not Allowed", false), ("200 OK", true), ("500 X", true)]
        {
            let (replica, mut requests) = answering(status).await;
            let sessions = UsedSessions::from([Session::OfTrial, Session::OfConversation(1)]);
            let trial = TrialId::new("trial").unwrap();
            announce(&SessionEnd { replica: Arc::clone(&replica), trial, sessions }).await;
            assert_eq!(replica.ends_sessions(), is_asked_again, "{status}");
            let mut count = 0;
            while requests.try_recv().is_ok() {
                count += 1;
            }
            assert_eq!(count, if is_asked_again { 2 } else { 1 }, "{status}");
        }
    }
}

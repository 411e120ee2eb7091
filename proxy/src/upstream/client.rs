//! A client for questions to one server outside of trials, such as the check before a job.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};

use super::http1::{AnswerError, Connections, ReadLimits, Request, RequestHead, ServerTls};
use super::replica::Outgoing;
use super::send_error::SendFailure;
use super::tls::UpstreamTls;
use super::{Address, HttpProxy, parser_question};
use crate::common::tls::TlsError;

/// The maximum size of an answer in bytes.
const LARGEST: usize = 64 << 20;

/// A client of one server. Its questions are no calls: they are not recorded.
#[derive(Debug)]
pub struct UpstreamClient {
    address: Address,
    /// `None` for a server without TLS.
    tls: Option<ServerTls>,
    connections: Arc<Connections>,
    /// The longest time without a byte.
    silence: Duration,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct AskError(#[from] Reason);

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("{0}")]
    Send(SendFailure),
    #[error("its answer broke off: {0}")]
    Answer(AnswerError),
}

impl UpstreamClient {
    /// Prepares a client, and connects with its first question. `silence` limits the time without a byte.
    ///
    /// # Errors
    /// The address has `https`, and the files of TLS cannot be used.
    pub fn new(address: Address, tls: &UpstreamTls, silence: Duration) -> Result<Self, TlsError> {
        let tls = if address.is_tls() {
            let server = ServerTls::of(tls.connector()?, address.authority());
            Some(server.ok_or_else(|| TlsError::InvalidHost(address.to_string()))?)
        } else {
            None
        };
        Ok(Self {
            connections: Connections::to(address.authority().clone(), tls.clone(), None),
            address,
            tls,
            silence,
        })
    }

    /// Connects through this HTTP proxy, if there is one.
    #[must_use]
    pub fn through(self, http_proxy: Option<HttpProxy>) -> Self {
        let connections = Connections::to(self.address.authority().clone(), self.tls.clone(), http_proxy);
        Self { connections, ..self }
    }

    /// Returns the number of connections so far. Fewer than questions: the server keeps connections open.
    pub fn opened_connections(&self) -> usize {
        self.connections.opened()
    }

    /// Sends a `GET` with the API key of the address, and reads the whole answer, whatever its status is.
    ///
    /// # Errors
    /// The server does not answer, or its answer breaks off.
    pub async fn get(&self, path: &str) -> Result<Response<Bytes>, AskError> {
        let headers = HeaderMap::new();
        let question =
            Outgoing { method: Method::GET, path, headers: &headers, session: None, body: Bytes::new() };
        self.ask(&question.to_server(&self.address).map_err(Reason::Send)?).await
    }

    /// Asks a vLLM whether it parses its answers (`--reasoning-parser`, `--tool-call-parser`). `None` if it does not
    /// answer this question, which vLLM 0.32 does with `--enable-scale-out`.
    pub async fn has_parser(&self) -> Option<bool> {
        let headers = parser_question::headers();
        let question = parser_question::question(&headers).to_server(&self.address).ok()?;
        let answer = self.ask(&question).await.ok()?;
        if answer.status().is_success() { parser_question::has_parser(answer.body()) } else { None }
    }

    /// Sends a `POST` with these headers, and reads the whole answer, whatever its status is.
    ///
    /// # Errors
    /// The server does not answer, or its answer breaks off.
    pub(crate) async fn post(
        &self,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<Response<Bytes>, AskError> {
        let head =
            RequestHead::new(&Method::POST, self.address.authority().as_str(), self.address.prefix(), path);
        let mut head = head.map_err(|error| Reason::Send(error.into()))?;
        headers.iter().for_each(|(name, value)| head.add(name, value));
        self.ask(&head.with_body(body)).await
    }

    async fn ask(&self, question: &Request) -> Result<Response<Bytes>, AskError> {
        let asked = tokio::time::timeout(self.silence, self.connections.request(question)).await;
        let asked = asked.unwrap_or(Err(SendFailure::Silent(self.silence)));
        let (head, body) = asked.map_err(Reason::Send)?.into_parts();
        let limits = ReadLimits { bytes: LARGEST, silence: self.silence };
        Ok(Response::from_parts(head, body.whole(limits).await.map_err(Reason::Answer)?))
    }
}

//! The reasons why a server, or the whole pool, gives no answer to a request.

use std::time::Duration;

use http::{Response, StatusCode, header};

use super::Replica;

/// The reason why no response began.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendFailure {
    /// The request was never sent.
    #[error("{0}")]
    Connect(String),
    /// The connection closed before a response began. A server may close an idle connection while a request is being sent
    /// on it.
    #[error("it closed the connection before it answered: {0}")]
    Closed(String),
    /// Any other failure, such as a response that is not HTTP.
    #[error("{0}")]
    Broken(String),
    /// No response began within this time.
    #[error("it did not begin to answer within {0:?}")]
    Silent(Duration),
}

/// The reason why a call got no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// No server could be asked. Contains the reasons by server.
    #[error("no upstream takes calls: {0}")]
    NoneTakesCalls(String),
    /// The server did not answer, and may have worked on the call.
    #[error("the upstream at {address} gave no answer: {reason}")]
    NoAnswer { address: String, reason: String },
    /// The server was silent for too long.
    #[error("the upstream at {address} gave no answer: {reason}")]
    Silent { address: String, reason: String },
    /// The server redirects. An agent that followed the redirect would bypass the proxy.
    #[error(
        "the upstream at {address} redirects with {status} to {location}: give that address to --upstream"
    )]
    Redirects { address: String, status: StatusCode, location: String },
}

impl SendFailure {
    /// Whether no server listens there. An immediate retry would fail too.
    pub(super) fn is_conclusive(&self) -> bool {
        matches!(self, Self::Connect(_))
    }
}

impl SendError {
    pub(super) fn redirects<B>(replica: &Replica, response: &Response<B>) -> Self {
        let location = response.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
        Self::Redirects {
            address: replica.address().to_string(),
            status: response.status(),
            location: location.unwrap_or("nowhere").to_owned(),
        }
    }

    pub(super) fn of(replica: &Replica, failure: &SendFailure) -> Self {
        let (address, reason) = (replica.address().to_string(), failure.to_string());
        match failure {
            SendFailure::Silent(_) => Self::Silent { address, reason },
            SendFailure::Connect(_) | SendFailure::Closed(_) | SendFailure::Broken(_) => {
                Self::NoAnswer { address, reason }
            }
        }
    }
}

/// Returns the innermost error, without the layers around it.
pub(super) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

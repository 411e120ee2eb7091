//! The errors between the agent and its model, and their detection in a server's answer.

use std::error::Error as _;
use std::fmt::Write as _;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::Value;
use thiserror::Error;

/// Why the model gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChatError {
    /// The base URL is invalid.
    #[error("the model's address {url:?} cannot be used: {cause}")]
    BadUrl {
        /// The given address.
        url: String,
        /// The problem of the address.
        cause: String,
    },
    /// There was no connection, or it broke off.
    #[error(
        "no answer from the model at {url}: {cause}; check that the server runs and that the address is right"
    )]
    Unreachable {
        /// The called address.
        url: String,
        /// The network error.
        cause: String,
    },
    /// The server sent nothing for longer than the idle limit of a call.
    #[error("the model at {url} sent nothing for {} seconds", idle.as_secs_f64())]
    Timeout {
        /// The called address.
        url: String,
        /// The limit.
        idle: Duration,
    },
    /// The conversation is longer than the model's context.
    #[error("the conversation does not fit into the model's context: {message}")]
    ContextExceeded {
        /// The server's message.
        message: String,
    },
    /// Any other error answer.
    #[error("the model at {url} answered {status}: {message}")]
    Refused {
        /// The called address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// A successful answer that is not a chat completion.
    #[error(
        "the model at {url} answered something that is no chat completion: {cause}; it begins with {body:?}"
    )]
    Malformed {
        /// The called address.
        url: String,
        /// The problem of the answer.
        cause: String,
        /// The beginning of the answer.
        body: String,
    },
}

/// Returns the error of a request without a complete answer.
pub(crate) fn failed_request(url: &str, idle: Duration, error: &reqwest::Error) -> ChatError {
    // A timeout during the connection counts as unreachable, so the call is retried.
    if error.is_timeout() && !error.is_connect() {
        return ChatError::Timeout { url: url.to_owned(), idle };
    }
    let mut cause = String::new();
    // reqwest's own message omits the cause, such as a refused connection.
    let mut source = error.source();
    while let Some(inner) = source {
        let separator = if cause.is_empty() { "" } else { ": " };
        let written = write!(cause, "{separator}{inner}");
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
        source = inner.source();
    }
    if cause.is_empty() {
        cause = error.to_string();
    }
    if error.is_builder() {
        return ChatError::BadUrl { url: url.to_owned(), cause };
    }
    ChatError::Unreachable { url: url.to_owned(), cause }
}

/// Returns the error of an answer with an error status.
pub(crate) fn refused(url: &str, status: StatusCode, body: &[u8]) -> ChatError {
    let json: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let message = ["/error/message", "/message", "/detail", "/error"]
        .iter()
        .find_map(|path| json.pointer(path)?.as_str().map(str::to_owned))
        .unwrap_or_else(|| excerpt(body));
    let code = json.pointer("/error/code").and_then(Value::as_str).unwrap_or_default();
    // A server error is transient, whatever its message.
    if status.is_client_error() && is_context_overflow(&message, code) {
        return ChatError::ContextExceeded { message };
    }
    ChatError::Refused { url: url.to_owned(), status: status.as_u16(), message }
}

/// Whether the error is an overflow of the context. There is no common format: OpenAI has a code, and vLLM has had
/// several messages.
fn is_context_overflow(message: &str, code: &str) -> bool {
    const WORDINGS: [&str; 4] = [
        "maximum context length",
        "context_length_exceeded",
        "max_tokens must be at least 1",
        "input length",
    ];
    let message = message.to_lowercase();
    code == "context_length_exceeded" || WORDINGS.iter().any(|wording| message.contains(wording))
}

/// Returns the beginning of a body for an error message.
pub(crate) fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.trim().chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(status: u16, body: &str) -> ChatError {
        refused("http://m/v1", StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    #[test]
    fn the_servers_message_is_found_in_every_common_shape() {
        for body in [
            r#"{"error": {"message": "no such model", "type": "x", "code": 404}}"#,
            r#"{"message": "no such model"}"#,
            r#"{"detail": "no such model"}"#,
            r#"{"error": "no such model"}"#,
            " no such model\n",
        ] {
            assert_eq!(
                error(404, body).to_string(),
                "the model at http://m/v1 answered 404: no such model",
                "{body}"
            );
        }
    }

    #[test]
    fn every_known_wording_of_a_full_context_is_recognised() {
        for body in [
            r#"{"error": {"message": "This model's maximum context length is 512 tokens.", "code": 400}}"#,
            r#"{"error": {"message": "too long", "code": "context_length_exceeded"}}"#,
            r#"{"error": {"message": "max_tokens must be at least 1, got -9."}}"#,
            r#"{"message": "Input length (9000) exceeds the limit"}"#,
        ] {
            assert!(matches!(error(400, body), ChatError::ContextExceeded { .. }), "{body}");
        }
        assert!(matches!(error(400, "temperature is negative"), ChatError::Refused { .. }));
        assert!(matches!(error(500, "maximum context length"), ChatError::Refused { .. }));
    }

    proptest! {
        #[test]
        fn any_body_becomes_a_message_of_bounded_length(body in prop::collection::vec(any::<u8>(), 0..2000)) {
            let refused = refused("u", StatusCode::BAD_REQUEST, &body).to_string();
            prop_assert!(refused.chars().count() < 400);
        }
    }
}

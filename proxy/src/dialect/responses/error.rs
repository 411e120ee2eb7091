//! Translates errors to the wording of OpenAI's service, which agents recognize.

use http::StatusCode;
use serde_json::json;

use super::object::ResponseFailure;
use crate::dialect::upstream_error::UpstreamError;

/// OpenAI's wording, by which agents recognize that they must shorten the conversation.
const OVERFLOW: &str =
    "Your input exceeds the context window of this model. Please adjust your input and try again.";

/// Returns the JSON body of an error answer.
pub(crate) fn error_body(error: &UpstreamError) -> Vec<u8> {
    let kind = match error.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "server_error",
    };
    let (message, code, param) = match &error.overflow {
        Some(_) => (OVERFLOW, Some("context_length_exceeded"), Some("input")),
        None => (error.message.as_str(), error.code.as_deref(), None),
    };
    let body = json!({"error": {"message": message, "type": kind, "param": param, "code": code}});
    body.to_string().into_bytes()
}

/// Returns the failure with which a stream ends.
pub(super) fn failure(error: &UpstreamError) -> ResponseFailure {
    let code = match error.status {
        _ if error.overflow.is_some() => {
            return ResponseFailure {
                code: "context_length_exceeded".to_owned(),
                message: OVERFLOW.to_owned(),
            };
        }
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_exceeded",
        // Agents retry after a `server_error`, but not after this code.
        status if status.is_client_error() => "invalid_prompt",
        _ => "server_error",
    };
    ResponseFailure { code: code.to_owned(), message: error.message.clone() }
}

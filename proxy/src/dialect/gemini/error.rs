//! Translates errors to Gemini's form: `{"error": {code, message, status}}`.

use http::StatusCode;
use serde_json::json;

use crate::dialect::upstream_error::{Overflow, UpstreamError};

/// Returns the body of an error answer.
pub(crate) fn body(error: &UpstreamError) -> Vec<u8> {
    let message = error.overflow.map_or_else(|| error.message.clone(), overflow);
    let code = error.status.as_u16();
    json!({"error": {"code": code, "message": message, "status": name(error.status)}}).to_string().into()
}

/// Returns Google's own wording of an overflow. Agents search for it before they shorten a conversation.
fn overflow(overflow: Overflow) -> String {
    // Google names both numbers. An error of upstream may lack either.
    let number = |number: Option<u64>| number.map(|tokens| format!(" ({tokens})")).unwrap_or_default();
    let (prompt, limit) = (number(overflow.prompt), number(overflow.limit));
    format!("The input token count{prompt} exceeds the maximum number of tokens allowed{limit}.")
}

/// Returns the name of a status in `google.rpc`.
fn name(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "UNAUTHENTICATED",
        StatusCode::FORBIDDEN => "PERMISSION_DENIED",
        StatusCode::NOT_FOUND => "NOT_FOUND",
        StatusCode::CONFLICT => "ABORTED",
        StatusCode::TOO_MANY_REQUESTS => "RESOURCE_EXHAUSTED",
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => "UNIMPLEMENTED",
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => "UNAVAILABLE",
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => "DEADLINE_EXCEEDED",
        status if status.is_client_error() => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn told(status: u16, overflow: Option<Overflow>) -> Value {
        let status = StatusCode::from_u16(status).unwrap();
        let error = UpstreamError { status, message: "m".to_owned(), code: None, overflow };
        serde_json::from_slice(&body(&error)).unwrap()
    }

    #[test]
    fn statuses_have_their_names() {
        assert_eq!(
            told(400, None),
            json!({"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}})
        );
        for (status, name) in [
            (401, "UNAUTHENTICATED"),
            (404, "NOT_FOUND"),
            (413, "INVALID_ARGUMENT"),
            (429, "RESOURCE_EXHAUSTED"),
            (500, "INTERNAL"),
            (503, "UNAVAILABLE"),
        ] {
            assert_eq!(told(status, None)["error"]["status"], name);
        }
    }

    #[test]
    fn an_overflow_is_told_in_googles_words() {
        let told = told(400, Some(Overflow { limit: Some(4096), prompt: Some(5000) }));
        let message = "The input token count (5000) exceeds the maximum number of tokens allowed (4096).";
        assert_eq!(told["error"]["message"], message);
    }
}

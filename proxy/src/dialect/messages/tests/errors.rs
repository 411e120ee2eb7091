//! The shapes and texts of errors.

use http::StatusCode;
use serde_json::Value;

use super::super::error_body;
use crate::dialect::upstream_error::UpstreamError;

fn error_of(status: u16, message: &str) -> (String, String) {
    let error = UpstreamError::new(StatusCode::from_u16(status).unwrap(), message);
    let body: Value = serde_json::from_slice(&error_body(&error)).unwrap();
    assert_eq!(body["type"], "error");
    let text = |key: &str| body["error"][key].as_str().unwrap().to_owned();
    (text("type"), text("message"))
}

#[test]
fn each_status_has_its_type() {
    for (status, kind) in [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (410, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
    ] {
        assert_eq!(error_of(status, "m"), (kind.to_owned(), "m".to_owned()), "{status}");
    }
}

#[test]
fn an_overflow_has_the_message_that_agents_recognise() {
    let (_, message) = error_of(
        400,
        "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input tokens, \
         which exceeds this limit even without any output tokens.",
    );
    assert_eq!(message, "prompt is too long: 4097 tokens > 4096 maximum");
    let (_, message) = error_of(
        400,
        "This model's maximum context length is 4096 tokens. However, your prompt contains 90000 characters (more than",
    );
    assert!(message.starts_with("prompt is too long: This model's"), "{message}");
    for (vllm, words) in [
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 tokens \
             and your request has 3000 input tokens (5000 > 4096 - 3000).",
            "3000 + 5000 > 4096,",
        ),
        (
            "max_tokens=32000 cannot be greater than max_model_len=4096. Please request fewer output tokens. \
             (parameter=max_tokens, value=32000)",
            "0 + 32000 > 4096,",
        ),
    ] {
        let (_, message) = error_of(400, vllm);
        let expected = format!("input length and `max_tokens` exceed context limit: {words}");
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[test]
fn no_other_error_has_that_message() {
    for (status, message) in
        [(400, "prompt has too many images"), (500, "max_tokens=1 max_model_len=1"), (404, "no model")]
    {
        assert_eq!(error_of(status, message).1, message);
    }
}

#[test]
fn a_template_without_system_messages_in_the_middle_is_named_so_that_agents_do_without() {
    for message in ["System message must be at the beginning.", "System role not supported"] {
        let (_, said) = error_of(400, message);
        assert!(
            said.starts_with("role: system in `messages` is not supported") && said.ends_with(message),
            "{said}"
        );
    }
    assert_eq!(error_of(400, "the system is not supported").1, "the system is not supported");
}

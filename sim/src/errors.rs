//! Refusals of requests, in vLLM's shapes.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

/// The refusal of a request: status and body.
#[derive(Debug, PartialEq)]
pub(super) struct RequestError {
    status: StatusCode,
    body: Value,
}

impl RequestError {
    /// Creates a refusal in vLLM's shape, `{"error": {message, type, param, code}}`.
    fn new(status: StatusCode, kind: &str, message: impl Into<String>, param: Option<&str>) -> Self {
        let error = json!({"message": message.into(), "type": kind, "param": param, "code": status.as_u16()});
        Self { status, body: json!({ "error": error }) }
    }

    /// Refuses a request that is well formed but cannot be served.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message, None)
    }

    /// Refuses a value out of its bounds. vLLM names the field twice, in the message and in `param`.
    pub(super) fn parameter(
        message: impl std::fmt::Display,
        name: &str,
        value: impl std::fmt::Display,
    ) -> Self {
        let message = format!("{message} (parameter={name}, value={value})");
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message, Some(name))
    }

    /// Refuses a field that has the wrong type, is missing or is malformed. The text is pydantic's, as vLLM prints it.
    pub(super) fn validation(
        kind: &str,
        location: &str,
        message: &str,
        input: &str,
        context: Option<&str>,
    ) -> Self {
        let context = context.map(|text| format!(", 'ctx': {{'error': '{text}'}}")).unwrap_or_default();
        let message = format!(
            "1 validation error:\n  {{'type': '{kind}', 'loc': '{location}', 'msg': '{message}', 'input': {input}{context}}}"
        );
        Self::new(StatusCode::BAD_REQUEST, "Bad Request", message, Some(location))
    }

    /// Refuses a body whose `Content-Type` is not JSON.
    pub(super) fn media_type() -> Self {
        let message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed";
        Self::new(StatusCode::BAD_REQUEST, "Bad Request", message, None)
    }

    /// Refuses a model that is not served.
    pub(super) fn unknown_model(asked: &str, served: &str) -> Self {
        let message = format!("The model `{asked}` does not exist. Valid aliases: {served}.");
        Self::new(StatusCode::NOT_FOUND, "NotFoundError", message, Some("model"))
    }

    /// Refuses a request as a script demands. The type follows from the status.
    pub(super) fn scripted(status: StatusCode, message: &str) -> Self {
        let kind = match status {
            StatusCode::BAD_REQUEST => "BadRequestError",
            StatusCode::UNAUTHORIZED => "AuthenticationError",
            StatusCode::FORBIDDEN => "PermissionDeniedError",
            StatusCode::NOT_FOUND => "NotFoundError",
            StatusCode::TOO_MANY_REQUESTS => "RateLimitError",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailableError",
            status if status.is_server_error() => "InternalServerError",
            _ => "BadRequestError",
        };
        Self::new(status, kind, message, None)
    }

    /// Refuses an unknown route or method, in the web framework's own shape.
    pub(super) fn routing(status: StatusCode) -> Self {
        Self { status, body: json!({"detail": status.canonical_reason().unwrap_or_default()}) }
    }

    /// Returns the refusal as an HTTP answer.
    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body.to_string())));
        *response.status_mut() = self.status;
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        response
    }
}

/// Formats a number as Python prints a float: `-1` is `-1.0`.
pub(super) fn python_float(number: f64) -> String {
    format!("{number:?}")
}

/// Formats a value as vLLM prints an input. Containers show only their size, so that prompts do not appear in logs.
pub(super) fn python_repr(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("'{text}'"),
        Value::Array(items) => format!("'<list of {} items>'", items.len()),
        Value::Object(map) => format!("'<dict of {} items>'", map.len()),
    }
}

/// Refuses a body that is not JSON. Names the position of the error in bytes, and the error of Python's parser at that
/// position.
pub(super) fn malformed(body: &[u8], error: &serde_json::Error) -> RequestError {
    let lines_before: usize = body
        .split_inclusive(|byte| *byte == b'\n')
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    let end = lines_before + error.column();
    let place = if error.is_eof() { body.len() } else { end.saturating_sub(1) };
    let text = error.to_string();
    let wanted = match text.as_str() {
        text if text.starts_with("EOF while parsing a string") => "Unterminated string starting at",
        text if text.starts_with("key must be a string") => {
            "Expecting property name enclosed in double quotes"
        }
        text if text.starts_with("expected `:`") => "Expecting ':' delimiter",
        text if text.starts_with("expected `,`") => "Expecting ',' delimiter",
        text if text.starts_with("trailing characters") => "Extra data",
        _ => "Expecting value",
    };
    let location = format!("body.{place}");
    RequestError::validation(
        "json_invalid",
        &location,
        "JSON decode error",
        "'<dict of 0 items>'",
        Some(wanted),
    )
}

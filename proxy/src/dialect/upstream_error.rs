//! Parses an error of upstream, so that a dialect can express it for its own clients.

use http::StatusCode;
use serde::Deserialize;

/// An error of upstream, or of the proxy in its place, independent of its form on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// OpenAI's `code`, if it is text. vLLM's `code` is a number, the status.
    pub(crate) code: Option<String>,
    /// Set if the prompt is too long. Agents compact if they recognize the wording of this error, and must not compact
    /// on other errors.
    pub(crate) overflow: Option<Overflow>,
}

/// The prompt does not fit the model's context, alone or together with the maximum length of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overflow {
    /// The size of the model's context in tokens, if the server states it.
    pub(crate) limit: Option<u64>,
    /// The length of the prompt in tokens, if the server states it.
    pub(crate) prompt: Option<u64>,
}

/// The form `{"error": {message, type, param, code}}`, and FastAPI's own `{"detail": …}`.
#[derive(Deserialize)]
struct UpstreamErrorBody {
    error: Option<Detail>,
    detail: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Detail {
    #[serde(default)]
    message: String,
    code: Option<serde_json::Value>,
}

impl UpstreamError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let message = message.into();
        // vLLM rejects a prompt that is too long with status 400. The same words in another error mean something else.
        let overflow = (status == StatusCode::BAD_REQUEST).then(|| Overflow::in_message(&message)).flatten();
        Self { status, message, code: None, overflow }
    }

    /// Parses an answer with an error status. A body of unknown form becomes the message.
    pub(crate) fn of_answer(status: StatusCode, body: &str) -> Self {
        match serde_json::from_str(body) {
            Ok(UpstreamErrorBody { error: Some(detail), .. }) => Self::of_detail(status, detail),
            Ok(UpstreamErrorBody { detail: Some(serde_json::Value::String(message)), .. }) => {
                Self::new(status, message)
            }
            _ if body.is_empty() => Self::new(status, status.to_string()),
            _ => Self::new(status, body),
        }
    }

    /// Parses the `error` object that vLLM puts into a stream or into an answer of status 200. Its `code` is the status
    /// that a separate error answer would have.
    pub(crate) fn inside_success(error: &str) -> Self {
        let Ok(detail) = serde_json::from_str::<Detail>(error) else {
            return Self::new(StatusCode::INTERNAL_SERVER_ERROR, error);
        };
        let stated = detail.code.as_ref().and_then(serde_json::Value::as_u64);
        let status = stated.and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
        // An error needs an error status, so a code such as 200 becomes 500.
        let is_error = |status: &StatusCode| status.is_client_error() || status.is_server_error();
        Self::of_detail(status.filter(is_error).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), detail)
    }

    fn of_detail(status: StatusCode, detail: Detail) -> Self {
        let code = detail.code.as_ref().and_then(serde_json::Value::as_str).map(str::to_owned);
        Self { code, ..Self::new(status, detail.message) }
    }
}

impl Overflow {
    /// Recognizes the messages of vLLM 0.6 to 0.32, for prompts of text and of ids.
    fn in_message(message: &str) -> Option<Self> {
        let limit =
            ["maximum context length is ", "maximum model length of "].into_iter().find_map(|before| {
                number_after(message, before, " tokens").or(number_after(message, before, "."))
            })?;
        let prompt = number_after(message, "contains ", " input tokens")
            .or_else(|| number_after(message, "contains at least ", " input tokens"))
            .or_else(|| number_after(message, "your request has ", " input tokens"))
            .or_else(|| number_after(message, "(length ", ")"));
        Some(Self { limit: Some(limit), prompt })
    }
}

/// Returns the number between the texts `before` and `after`, at the first place where there is one.
pub(super) fn number_after(text: &str, before: &str, after: &str) -> Option<u64> {
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once(before) {
        let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        let (number, tail) = behind.split_at(digits);
        if tail.starts_with(after) {
            return number.parse().ok();
        }
        rest = behind;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn overflow(message: &str) -> Option<Overflow> {
        let body = serde_json::json!({"error": {"message": message, "type": "BadRequestError", "code": 400}});
        UpstreamError::of_answer(StatusCode::BAD_REQUEST, &body.to_string()).overflow
    }

    #[test]
    fn every_wording_of_an_overflow_is_known() {
        let is = |limit, prompt| Some(Overflow { limit: Some(limit), prompt });
        assert_eq!(
            overflow(
                "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input \
                 tokens, which exceeds this limit even without any output tokens."
            ),
            is(4096, Some(4097))
        );
        assert_eq!(
            overflow(
                "This model's maximum context length is 4096 tokens. However, your prompt contains 90000 characters \
                 (more than 80000 characters, which is the upper bound for 4095 input tokens)."
            ),
            is(4096, None)
        );
        assert_eq!(
            overflow(
                "The decoder prompt (length 4100) is longer than the maximum model length of 4096. Make sure"
            ),
            is(4096, Some(4100))
        );
        assert_eq!(
            overflow(
                "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 \
                 tokens and your request has 3000 input tokens (5000 > 4096 - 3000)."
            ),
            is(4096, Some(3000))
        );
    }

    #[test]
    fn nothing_else_is_an_overflow() {
        for message in [
            "max_tokens=100000 cannot be greater than max_model_len=4096. Please request fewer output tokens.",
            "The model `x` does not exist.",
            "the prompt mentions a context length and is too long for my taste",
        ] {
            assert_eq!(overflow(message), None, "{message}");
        }
        let busy = "This model's maximum context length is 4096 tokens. However, your prompt contains 5000 input tokens";
        assert_eq!(UpstreamError::new(StatusCode::SERVICE_UNAVAILABLE, busy).overflow, None);
    }

    #[test]
    fn an_error_inside_of_a_success_has_the_status_that_it_names() {
        let error = UpstreamError::inside_success(
            r#"{"message":"m","type":"BadRequestError","param":null,"code":400}"#,
        );
        assert_eq!((error.status, error.message.as_str()), (StatusCode::BAD_REQUEST, "m"));
        assert_eq!(UpstreamError::inside_success(r#"{"message":"m","code":200}"#).status, 500);
        assert_eq!(UpstreamError::inside_success("boom").message, "boom");
    }

    #[test]
    fn what_is_not_of_the_form_is_told_as_it_came() {
        assert_eq!(UpstreamError::of_answer(StatusCode::BAD_GATEWAY, "<html>").message, "<html>");
        assert_eq!(
            UpstreamError::of_answer(StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#).message,
            "Not Found"
        );
        assert_eq!(UpstreamError::of_answer(StatusCode::BAD_GATEWAY, "").message, "502 Bad Gateway");
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".*", message in ".*(context length is |contains )?[0-9]{0,30}.*") {
            UpstreamError::of_answer(StatusCode::BAD_REQUEST, &text);
            UpstreamError::inside_success(&text);
            overflow(&message);
        }
    }
}

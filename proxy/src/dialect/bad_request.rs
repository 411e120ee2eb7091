//! The reason why a request is not sent upstream: it is invalid, or asks for something that cannot be translated.

/// A fault in a request, worded for its author: the problem, its place, and the remedy. The agent gets it with status
/// 400, in the error shape of its dialect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct BadRequest {
    message: String,
    /// The location in the body, such as `messages[2].content[0].type`.
    param: Option<String>,
}

impl BadRequest {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), param: None }
    }

    /// Creates the fault of the value at `param`.
    pub(crate) fn at(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { message: message.into(), param: Some(param.into()) }
    }

    pub(crate) fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }
}

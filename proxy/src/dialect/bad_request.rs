//! Why a request is not sent upstream: it is wrong, or asks for what cannot be carried over.

/// A request's fault, for the one who wrote it: what is wrong, where, what to do. Becomes a 400 in the shape of its
/// dialect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct BadRequest {
    message: String,
    /// Where in the body: `messages[2].content[0].type`.
    param: Option<String>,
}

impl BadRequest {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), param: None }
    }

    /// A fault of the value at `param`.
    pub(crate) fn at(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { message: message.into(), param: Some(param.into()) }
    }

    pub(crate) fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }
}

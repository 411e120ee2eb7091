//! The forms of errors that the clients of each dialect expect.

use super::upstream_error::UpstreamError;
use super::{gemini, messages, responses};

/// The form of errors that a client expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorShape {
    /// The form of OpenAI and vLLM: `{"error": {message, type, param, code}}`.
    OpenAi,
    /// OpenAI's form, with OpenAI's own codes.
    Responses,
    /// `{"type": "error", "error": {type, message}}`
    Anthropic,
    /// `{"error": {code, message, status}}`
    Gemini,
}

impl ErrorShape {
    /// Translates an error to the words and the form of the dialect. Returns `None` if vLLM's own bytes are right.
    pub(crate) fn translated(self, error: &UpstreamError) -> Option<Vec<u8>> {
        match self {
            Self::OpenAi => None,
            Self::Responses => Some(responses::error_body(error)),
            Self::Anthropic => Some(messages::error_body(error)),
            Self::Gemini => Some(gemini::error::body(error)),
        }
    }

    /// Returns the form for clients that call this path, even if the path does not exist.
    pub(crate) fn of_path(path: &str) -> Self {
        // The paths are matched by prefix, so that a wrong path below also gets an error that its client can read.
        if path.starts_with("/v1/messages") {
            Self::Anthropic
        } else if path.starts_with("/v1beta/") || (path.starts_with("/v1/models/") && path.contains(':')) {
            Self::Gemini
        } else if path.starts_with("/v1/responses") {
            Self::Responses
        } else {
            Self::OpenAi
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn errors_have_the_shape_of_the_paths_clients() {
        assert_eq!(ErrorShape::of_path("/v1/messages/count_tokens"), ErrorShape::Anthropic);
        assert_eq!(ErrorShape::of_path("/v1beta/models/m:x"), ErrorShape::Gemini);
        assert_eq!(ErrorShape::of_path("/v1/models"), ErrorShape::OpenAi);
    }

    proptest! {
        #[test]
        fn arbitrary_paths_never_panic(path in "(/v1beta/models/)?.*") {
            ErrorShape::of_path(&path);
        }
    }
}

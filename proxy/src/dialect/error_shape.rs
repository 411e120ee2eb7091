//! The shapes in which clients read errors.

use super::upstream_error::UpstreamError;
use super::{gemini, messages, responses};

/// The shapes in which clients read errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorShape {
    /// OpenAI's and vLLM's: `{"error": {message, type, param, code}}`.
    OpenAi,
    /// OpenAI's, with OpenAI's own codes.
    Responses,
    /// `{"type": "error", "error": {type, message}}`
    Anthropic,
    /// `{"error": {code, message, status}}`
    Gemini,
}

impl ErrorShape {
    /// An error in the words and the shape of the dialect; none where vLLM's own bytes are right.
    pub(crate) fn translated(self, error: &UpstreamError) -> Option<Vec<u8>> {
        match self {
            Self::OpenAi => None,
            Self::Responses => Some(responses::error_body(error)),
            Self::Anthropic => Some(messages::error_body(error)),
            Self::Gemini => Some(gemini::error::body(error)),
        }
    }

    /// In which shape a client that calls this path reads errors, also where the path is none of ours.
    pub(crate) fn of_path(path: &str) -> Self {
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

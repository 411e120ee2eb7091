//! Prompts of the server that differ from the local rendering: the reason, and the remedy.

use super::request_kind::RequestKind;

/// The remedy for prompts that the server renders to other ids.
const OTHER_IDS_REMEDY: &str = "give rolltap the --chat-template and --default-chat-template-kwargs of the server; if they \
     are equal, the server's tokenizer is not that of tokenizer.json, because transformers changes some tokenizers when it \
     loads them: save the loaded one with AutoTokenizer.from_pretrained(DIR).save_pretrained(NEW), and give NEW to \
     --tokenizer";
/// The remedy for prompts that only the server can render.
const UNRENDERED_REMEDY: &str = "if the server was started with another template, give it to --chat-template; \
     docs/explanation/exact-prefix.md lists what rolltap does not render";

/// Why a prompt of the server is not the local rendering of its messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refutation {
    /// The prompt of a call has other ids.
    #[error("its ids are not those of the text that the template makes of the messages")]
    OtherIds,
    /// The server's rendering in an audit has other ids.
    #[error("the server rendered the messages to other ids")]
    OtherIdsInAudit,
    /// The messages were not rendered here. Holds the error.
    #[error("its messages cannot be rendered here: {0}")]
    Unrendered(String),
}

impl Refutation {
    /// Returns the beginning of a warning.
    pub(super) fn summary(&self) -> &'static str {
        match self {
            Self::OtherIds | Self::OtherIdsInAudit => {
                "prompts are not rendered here as the server renders them"
            }
            Self::Unrendered(_) => "prompts of the server cannot be rendered here",
        }
    }

    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::OtherIds | Self::OtherIdsInAudit => OTHER_IDS_REMEDY,
            Self::Unrendered(_) => UNRENDERED_REMEDY,
        }
    }
}

/// A kind of requests whose prompts the server rendered otherwise than the proxy at least once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefutedKind {
    /// The features of the requests: roles, tools, template arguments.
    pub requests: String,
    /// The latest difference, in words.
    pub reason: String,
    /// What to change.
    pub remedy: &'static str,
}

impl RefutedKind {
    pub(super) fn of(kind: &RequestKind, refutation: &Refutation) -> Self {
        Self { requests: kind.to_string(), reason: refutation.to_string(), remedy: refutation.remedy() }
    }
}

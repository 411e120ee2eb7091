//! How the messages of a call relate to the earlier conversations of its trial, and how the prompt was made from that.
//!
//! The proxy determines this at admission, from the request of the agent. It is an explanation only: the recorded ids
//! alone decide which call extends which ([`crate::forest`]).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::branch_cause::BranchCause;
use crate::ids::CallId;

/// The conversation that a call continues. Calls whose messages were not compared have no `Continuation`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Continuation {
    /// A new conversation: the call continues no earlier conversation of the trial.
    Fresh {
        /// The relation to the earlier conversations, if there are any.
        cause: BranchCause,
    },
    /// The call continues an earlier conversation token for token: its ids and those of the new tail were sent as the
    /// prompt.
    Spliced {
        /// The answer that the prompt extends.
        parent: AnswerRef,
        /// How the template's rendering of that answer compares with the sampled tokens.
        class: Class,
        /// The new tail contains an answer that the agent edited after sampling. `parent` is the answer before it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_edited: bool,
    },
    /// The call continues an earlier conversation, but the server rendered the prompt from the messages.
    Rendered {
        /// The answer that the messages continue.
        parent: AnswerRef,
        /// Why the ids of that answer were not reused. If the rendering has the same ids, the branch continues all the
        /// same.
        cause: BranchCause,
        /// How the template's rendering of that answer compares with the sampled tokens, if it was compared.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<Class>,
    },
}

/// One answer of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct AnswerRef {
    /// The call.
    pub call_id: CallId,
    /// The index of the choice.
    pub choice: u32,
}

/// How the template's rendering of an answer compares with the sampled text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The text is the same.
    Equal,
    /// The same answer with another spelling: trimmed, tool arguments serialised again, or an empty reasoning block
    /// added or removed.
    Respelled,
    /// Meaningful content is dropped, added or moved.
    Rewritten,
}

impl Continuation {
    /// The name of the kind in serialised records.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Fresh { .. } => "fresh",
            Self::Spliced { .. } => "spliced",
            Self::Rendered { .. } => "rendered",
        }
    }

    /// Returns the cause of the branch that the call starts if its ids extend no answer, or an answer that another call
    /// already extends.
    pub fn cause(&self) -> Option<BranchCause> {
        match self {
            Self::Fresh { cause } | Self::Rendered { cause, .. } => Some(*cause),
            Self::Spliced { is_edited, .. } => is_edited.then_some(BranchCause::HistoryEdited),
        }
    }

    /// Whether the agent edited an answer after the parent.
    pub(crate) fn is_edited(&self) -> bool {
        matches!(self, Self::Spliced { is_edited: true, .. })
    }

    /// Returns the answer that the messages continue.
    pub fn parent(&self) -> Option<&AnswerRef> {
        match self {
            Self::Fresh { .. } => None,
            Self::Spliced { parent, .. } | Self::Rendered { parent, .. } => Some(parent),
        }
    }
}

//! How a call's messages relate to the conversations before it in its trial, and what was made of that.
//!
//! It is found when the call comes in, by what the agent sends. It explains; recorded ids alone decide which call
//! extends which ([`crate::forest`]).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::branch_cause::BranchCause;
use crate::ids::CallId;

/// What a call continues. Nothing is said of calls that nobody looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Continuation {
    /// No earlier conversation of the trial: a new one.
    Fresh {
        /// What came before it, if anything.
        cause: BranchCause,
    },
    /// An earlier conversation, token for token: the prompt was sent as its ids and what is new.
    Spliced {
        /// The answer that it goes on from.
        parent: AnswerRef,
        /// How the template would have shown that answer.
        class: Class,
        /// What is new holds an answer that the agent changed after it was sampled: the messages go on from the answer before
        /// that one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_edited: bool,
    },
    /// An earlier conversation, but the prompt is what the server made of the messages.
    Rendered {
        /// The answer that it goes on from.
        parent: AnswerRef,
        /// Why its ids were not kept. Where the server's rendering has them all the same, the branch goes on.
        cause: BranchCause,
        /// How the template shows that answer, if that was found out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<Class>,
    },
}

/// One answer of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct AnswerRef {
    /// The call.
    pub call_id: CallId,
    /// Which of its choices.
    pub choice: u32,
}

/// What the template would have shown of an answer, against what was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The same text.
    Equal,
    /// The same answer in another spelling: trimmed, tool arguments written anew, an empty reasoning block more or less.
    Respelled,
    /// Something with meaning is dropped, added or moved.
    Rewritten,
}

impl Continuation {
    /// Why the call would start a branch, where its ids extend no earlier answer, or one that an earlier call extends.
    pub fn cause(&self) -> Option<BranchCause> {
        match self {
            Self::Fresh { cause } | Self::Rendered { cause, .. } => Some(*cause),
            Self::Spliced { is_edited, .. } => is_edited.then_some(BranchCause::HistoryEdited),
        }
    }

    /// Whether the agent changed an answer behind the one that the ids go on from.
    pub(crate) fn is_edited(&self) -> bool {
        matches!(self, Self::Spliced { is_edited: true, .. })
    }

    /// The answer that the messages go on from.
    pub fn parent(&self) -> Option<&AnswerRef> {
        match self {
            Self::Fresh { .. } => None,
            Self::Spliced { parent, .. } | Self::Rendered { parent, .. } => Some(parent),
        }
    }
}

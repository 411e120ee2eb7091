//! The result of a run: its report, or the error that ended it.

use serde::Serialize;
use thiserror::Error;

use crate::chat::{ChatError, Message};

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentReport {
    /// The number of the model's answers.
    pub turns: u32,
    /// Whether the model declared the task complete and confirmed this.
    pub completed: bool,
    /// Why the run ended.
    pub stop: StopReason,
    /// How often a shorter conversation replaced a conversation that had grown too long.
    pub summaries: u32,
    /// The prompt tokens of all calls together, as counted by the server.
    pub prompt_tokens: u64,
    /// The completion tokens of all calls together, as counted by the server.
    pub completion_tokens: u64,
    /// Every message of the main conversation, in order. The trajectory has those of the helper conversations.
    pub transcript: Vec<Message>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model confirmed that the task is complete.
    Completed,
    /// The limit on turns was reached.
    MaxTurns,
    /// The conversation no longer fits into the model's context.
    ContextExceeded,
    /// The terminal's stream ended, for example because the model left its shell.
    TerminalClosed,
    /// The run was cancelled from outside.
    Cancelled,
    /// The model gave no answer. The [`AgentError`] has the reason.
    ModelFailed,
}

/// Why a run failed.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The settings are invalid, and nothing was started.
    #[error(transparent)]
    Settings(ChatError),
    /// The model failed during the run.
    #[error("{source} (turn {})", report.turns + 1)]
    Model {
        /// The error from the client or the server.
        source: ChatError,
        /// The work until then. Its `stop` is [`StopReason::ModelFailed`].
        report: Box<AgentReport>,
    },
}

//! The result of a run: its report, or the error that ended it.

use serde::Serialize;
use thiserror::Error;

use crate::chat::{ChatError, Message};

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentReport {
    /// Answers of the model.
    pub turns: u32,
    /// The model said that the task is complete, and confirmed it.
    pub completed: bool,
    /// Why the run ended.
    pub stop: StopReason,
    /// How often a shorter conversation took the place of one that had grown too long.
    pub summaries: u32,
    /// Prompt tokens of all calls together, as the server counted them.
    pub prompt_tokens: u64,
    /// Completion tokens of all calls together, as the server counted them.
    pub completion_tokens: u64,
    /// Every message of the main conversation, in order; those of helper conversations are in the trajectory.
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
    /// The model gave no answer; the [`AgentError`] says why.
    ModelFailed,
}

/// Why a run failed.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The settings cannot be used; nothing was started.
    #[error(transparent)]
    Settings(ChatError),
    /// The model failed in mid-run.
    #[error("{source} (turn {})", report.turns + 1)]
    Model {
        /// What the model's side said.
        source: ChatError,
        /// What was done until then; its `stop` is [`StopReason::ModelFailed`].
        report: Box<AgentReport>,
    },
}

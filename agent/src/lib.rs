//! A terminal over any byte stream, and the agent that works in it.
//!
//! The agent shows a terminal to a model, types what the model answers, and ends when the model twice in a row says that
//! the task is complete. Its behaviour follows Terminus-2, the reference agent of Harbor; so do its formats of
//! answers. It knows neither Docker nor any other part of this project: it is handed the bytes of a terminal and the
//! address of a model.
#![forbid(unsafe_code)]

use futures_util::future::BoxFuture;
use serde::Serialize;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

pub mod answer;
mod chat;
mod clip;
mod conversation;
mod episode;
mod handover;
pub mod hands;
mod keys;
mod line_drawing;
pub mod prompt;
mod screen;
mod settings;
pub mod terminal;
mod trajectory;

pub use chat::{ChatError, Message, Role};
pub use settings::{AgentSettings, Summarize, TrajectorySettings};
use terminal::Terminal;

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

/// Works on `instruction` in `terminal` until the model has confirmed that it is done, a limit is reached, the terminal
/// closes or `cancel` is cancelled. All of these are reports; of a cancelled run it holds what was done so far.
///
/// The terminal stays the caller's: closing it hangs up on what the agent left running, which its tests may look for.
///
/// # Errors
/// The base URL cannot be used, or the model failed for good: unreachable, or an error that trying again did not cure.
/// The latter error carries the report up to there.
///
/// The returned future is boxed so that this crate compiles the agent once. The body of an `async fn` is compiled by every
/// crate that polls it, with that crate's settings.
pub fn run<'a>(
    settings: AgentSettings,
    instruction: &'a str,
    terminal: &'a Terminal,
    cancel: CancellationToken,
) -> BoxFuture<'a, Result<AgentReport, AgentError>> {
    Box::pin(async move {
        let chat = chat::ChatClient::new(settings).map_err(AgentError::Settings)?;
        episode::Episode::new(&chat, terminal, instruction).run(cancel).await
    })
}

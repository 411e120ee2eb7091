//! A terminal over any byte stream, and the agent that works in it.
//!
//! The agent shows a terminal to a model, types what the model answers, and ends when the model twice in a row says that
//! the task is complete. Its behaviour follows Terminus-2, the reference agent of Harbor; so do its formats of
//! answers. It knows neither Docker nor any other part of this project: it is handed the bytes of a terminal and the
//! address of a model.
#![forbid(unsafe_code)]

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

pub mod answer;
mod chat;
mod conversation;
mod episode;
mod keys;
mod line_drawing;
pub mod prompt;
mod report;
mod screen;
mod settings;
mod summarize;
pub mod terminal;
mod trajectory;
mod truncate;
pub mod type_commands;

pub use chat::{ChatError, Message, Role};
pub use report::{AgentError, AgentReport, StopReason};
pub use settings::{AgentSettings, Summarize, TrajectorySettings};
use terminal::Terminal;

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

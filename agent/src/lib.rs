//! A terminal over any byte stream, and the agent that works in it.
//!
//! The agent shows a terminal to a model and types the model's answers. It ends when the model confirms that the task
//! is complete. Its behaviour and its answer formats follow Terminus-2, the reference agent of Harbor. It knows neither
//! Docker nor the proxy: its inputs are the byte stream of a terminal and the address of a model. It takes from
//! `rolltap-rollout` only the parser of a server's list of models.
#![forbid(unsafe_code)]

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

pub mod answer;
mod chat;
mod conversation;
mod episode;
mod http_client;
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
pub use http_client::{ClientError, ClientTimeouts, client_for, side_client_for};
pub use report::{AgentError, AgentReport, StopReason};
pub use screen::Screen;
pub use settings::{AgentSettings, Summarize, TrajectorySettings};
use terminal::Terminal;

/// Works on `instruction` in `terminal` until the model has confirmed completion, a limit is reached, the terminal
/// closes, or `cancel` is cancelled. Each of these gives a report. The report of a cancelled run has the work so far.
///
/// The caller still owns the terminal. Closing it sends a hang-up to processes of the agent, for which the tests of the
/// task may look.
///
/// # Errors
/// The base URL is invalid, or the model failed permanently: it is unreachable, or an error persisted after
/// all retries. The latter error contains the report up to that point.
///
/// The returned future is boxed so that this crate compiles the agent once. Every crate that polls an `async fn` would
/// compile its body again, with that crate's settings.
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

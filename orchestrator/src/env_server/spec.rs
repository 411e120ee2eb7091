//! What is settled when an environment is made.

use std::sync::Arc;

use rolltap_agent::answer::AnswerFormat;
use rolltap_agent::terminal::TerminalSize;

use crate::environment::EnvironmentKind;
use crate::task::Task;

/// What is settled when an environment is made.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) id: String,
    pub(super) task: Arc<Task>,
    pub(super) kind: EnvironmentKind,
    pub(super) terminal: TerminalKind,
    pub(super) size: TerminalSize,
    /// Of answers that are to be read.
    pub(super) format: AnswerFormat,
    /// The task counts as complete when that is said twice in a row.
    pub(super) confirm_completion: bool,
    /// The episode ends after so many.
    pub(super) max_steps: Option<u32>,
}

/// What an episode's terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TerminalKind {
    /// A pseudo-terminal with a screen emulator of our own.
    Screen,
    /// A session of tmux inside, which a person can look at.
    Tmux,
}

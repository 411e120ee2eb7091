//! The settings of an environment, fixed at its creation.

use std::sync::Arc;

use rolltap_agent::answer::AnswerFormat;
use rolltap_agent::terminal::TerminalSize;

use crate::environment::EnvironmentKind;
use crate::task::Task;

/// The settings of an environment, fixed at its creation.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) id: String,
    pub(super) task: Arc<Task>,
    pub(super) kind: EnvironmentKind,
    pub(super) terminal: TerminalKind,
    pub(super) size: TerminalSize,
    /// The format of answers.
    pub(super) format: AnswerFormat,
    /// Whether two consecutive steps must declare the task complete.
    pub(super) confirm_completion: bool,
    /// The number of steps after which the episode ends. `None` for no limit.
    pub(super) max_steps: Option<u32>,
}

/// The kind of terminal of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TerminalKind {
    /// A pseudo-terminal with rolltap's screen emulator.
    Screen,
    /// A tmux session in the environment, which a person can watch.
    Tmux,
}

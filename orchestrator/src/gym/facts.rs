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
    pub(super) size: TerminalSize,
    /// Of answers that are to be read.
    pub(super) format: AnswerFormat,
    /// The task counts as complete when that is said twice in a row.
    pub(super) confirm_completion: bool,
    /// The episode ends after so many.
    pub(super) max_steps: Option<u32>,
}

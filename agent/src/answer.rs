//! Parses a model's answer: its thoughts, the keystrokes to type, and whether the task is complete.
//!
//! The formats and the tolerance are those of Terminus-2's parsers. A defect with an unambiguous meaning is a warning,
//! and the answer is executed. Any other defect is an error, and nothing of such an answer is executed.

mod json;
mod json_object;
mod xml;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The format in which a model must write its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerFormat {
    /// One JSON object with `analysis`, `plan`, `commands` and optionally `task_complete`.
    #[default]
    Json,
    /// The same as XML elements in a `response`. Keystrokes are literal: nothing is escaped.
    Xml,
}

/// A parsed answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// The model's view of the terminal. Empty if missing.
    pub analysis: String,
    /// The model's intention. Empty if missing.
    pub plan: String,
    /// The commands to type, in order.
    pub commands: Vec<Command>,
    /// Whether the model considers the task solved.
    pub task_complete: bool,
    /// Remarks on the form of the answer for the model, a sentence each.
    pub warnings: Vec<String>,
}

/// Keystrokes, and the wait after typing these.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Literal text, or the name of one key. Empty for a wait only.
    pub keystrokes: String,
    /// Between zero and [`LONGEST_WAIT`].
    pub wait: Duration,
}

/// Why an answer cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct AnswerError {
    /// The problem, in one or two sentences for the model.
    pub problem: String,
    /// The warnings apart from the problem.
    pub warnings: Vec<String>,
}

/// The longest wait of a command. For a longer wait the model must send another command.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The wait of a command without a duration.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// The parsed parts of an answer in either format.
#[derive(Debug, Default)]
struct Parts {
    analysis: String,
    plan: String,
    commands: Vec<Command>,
    task_complete: bool,
}

impl AnswerFormat {
    /// Parses the answer in `text`.
    ///
    /// # Errors
    /// The text is not an answer in this format, or is ambiguous.
    pub fn parse(self, text: &str) -> Result<ModelAnswer, AnswerError> {
        let mut warnings = Vec::new();
        let read = match self {
            Self::Json => json::read(text, &mut warnings),
            Self::Xml => xml::read(text, &mut warnings),
        };
        match read {
            Ok(Parts { analysis, plan, commands, task_complete }) => {
                Ok(ModelAnswer { analysis, plan, commands, task_complete, warnings })
            }
            Err(problem) => Err(AnswerError { problem, warnings }),
        }
    }

    /// Returns the answer of a truncated text if the answer is complete before the cut. For JSON this is unknown: the
    /// missing part may have been another object.
    pub(crate) fn salvage(self, cut_off: &str) -> Option<ModelAnswer> {
        match self {
            Self::Json => None,
            // The text after the whole response is ignored: it was cut off, and the response is complete without it.
            Self::Xml => self.parse(xml::whole_response(cut_off)?).ok(),
        }
    }
}

impl FromStr for AnswerFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "json" => Ok(Self::Json),
            "xml" => Ok(Self::Xml),
            other => Err(format!("no such format of answers: {other:?} (known are json and xml)")),
        }
    }
}

impl fmt::Display for AnswerFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "json",
            Self::Xml => "xml",
        })
    }
}

impl Command {
    /// Returns a command with a wait in seconds. A negative number counts as 0, the maximum is [`LONGEST_WAIT`], and
    /// NaN gives the default wait.
    pub fn new(keystrokes: impl Into<String>, seconds: f64) -> Self {
        Self { keystrokes: keystrokes.into(), wait: wait_of(seconds) }
    }

    /// Whether later keystrokes cannot continue this command's line.
    fn ends_a_line(&self) -> bool {
        self.keystrokes.ends_with(['\n', '\r']) || crate::keys::is_key(&self.keystrokes)
    }
}

fn wait_of(seconds: f64) -> Duration {
    // NaN passes `clamp` and fails the conversion.
    Duration::try_from_secs_f64(seconds.clamp(0.0, LONGEST_WAIT.as_secs_f64())).unwrap_or(DEFAULT_WAIT)
}

/// Warns of commands without a line break. Only a line break makes a shell run a command, and without it the next
/// command is on the same line.
fn warn_of_run_on_lines(commands: &[Command], warnings: &mut Vec<String>) {
    for (index, command) in commands.iter().enumerate().take(commands.len().saturating_sub(1)) {
        if !command.keystrokes.is_empty() && !command.ends_a_line() {
            warnings.push(format!(
                "Command {} does not end with a line break, so the keystrokes after it continue its line.",
                index + 1
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_known_by_its_name() {
        for format in [AnswerFormat::Json, AnswerFormat::Xml] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!("yaml".parse::<AnswerFormat>().unwrap_err().contains("json and xml"));
    }

    #[test]
    fn a_wait_is_a_time() {
        for (seconds, wait) in
            [(0.5, 500), (-1.0, 0), (1e9, 60_000), (f64::NAN, 1000), (f64::INFINITY, 60_000)]
        {
            assert_eq!(Command::new("", seconds).wait, Duration::from_millis(wait), "{seconds}");
        }
    }
}

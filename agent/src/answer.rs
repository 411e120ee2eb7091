//! Reading a model's answer: what it thinks, what it wants typed, and whether it is done.
//!
//! The formats and the tolerance are those of Terminus-2's parsers: what can be understood without guessing is carried
//! out and remarked on in a warning; what cannot is an error, and nothing of such an answer is carried out.

mod json;
mod json_object;
mod xml;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How a model is asked to write its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerFormat {
    /// One JSON object with `analysis`, `plan`, `commands` and perhaps `task_complete`.
    #[default]
    Json,
    /// The same as XML elements in a `response`, with keystrokes as they are: nothing is escaped.
    Xml,
}

/// What the model wants done.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// What the model sees; empty if it did not say.
    pub analysis: String,
    /// What the model intends; empty if it did not say.
    pub plan: String,
    /// What to type, in order.
    pub commands: Vec<Command>,
    /// The model thinks that the task is solved.
    pub task_complete: bool,
    /// What the model should do better next time, each a sentence.
    pub warnings: Vec<String>,
}

/// Keystrokes, and how long to wait after typing them.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Text as it stands, or the name of one key. Empty for nothing but the wait.
    pub keystrokes: String,
    /// Between zero and [`LONGEST_WAIT`].
    pub wait: Duration,
}

/// Why an answer cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct AnswerError {
    /// What is wrong, in a sentence or two for the model.
    pub problem: String,
    /// What else was noticed.
    pub warnings: Vec<String>,
}

/// Longest time that a command may ask to wait; whoever wants more looks again.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long a command waits that does not say.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// What a format's reader finds.
#[derive(Debug, Default)]
struct Parts {
    analysis: String,
    plan: String,
    commands: Vec<Command>,
    task_complete: bool,
}

impl AnswerFormat {
    /// Reads the answer in `text`.
    ///
    /// # Errors
    /// The text is no answer of this format, or one that could only be carried out by guessing.
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

    /// The answer in a text that a limit on tokens cut off, if all of it came before the cut. Of JSON one cannot tell:
    /// what was cut off may have been another object.
    pub(crate) fn salvage(self, cut_off: &str) -> Option<ModelAnswer> {
        match self {
            Self::Json => None,
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
    /// A command that waits for so many seconds, if that is a time at all: less than none is none, and at most it is
    /// [`LONGEST_WAIT`].
    pub fn new(keystrokes: impl Into<String>, seconds: f64) -> Self {
        Self { keystrokes: keystrokes.into(), wait: wait_of(seconds) }
    }

    /// Whether nothing typed later can end up on this command's line.
    fn ends_a_line(&self) -> bool {
        self.keystrokes.ends_with(['\n', '\r']) || crate::keys::is_key(&self.keystrokes)
    }
}

fn wait_of(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.clamp(0.0, LONGEST_WAIT.as_secs_f64())).unwrap_or(DEFAULT_WAIT)
}

/// Only a line break makes a shell run what was typed; without one the next command lands on the same line.
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

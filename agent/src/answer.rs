//! Reading a model's answer: one JSON object with `analysis`, `plan`, `commands` and perhaps `task_complete`, wherever
//! it stands in the text.
//!
//! The tolerance is that of Terminus-2's JSON parser: what can be understood without guessing is carried out and
//! remarked on in a warning; what cannot is an error, and nothing of such an answer is carried out.

use std::time::Duration;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::json_object;

/// Longest time that a command may ask to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long a command waits that does not say.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// What the model wants done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) commands: Vec<Command>,
    pub(crate) task_complete: bool,
    /// What the model should do better next time, each a sentence.
    pub(crate) warnings: Vec<String>,
}

/// Keystrokes, and how long to wait after typing them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Command {
    pub(crate) keystrokes: String,
    /// Between zero and [`LONGEST_WAIT`].
    pub(crate) wait: Duration,
}

/// Why an answer cannot be carried out.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{problem}")]
pub(crate) struct AnswerError {
    pub(crate) problem: String,
    pub(crate) warnings: Vec<String>,
}

/// Reads the answer in `text`.
pub(crate) fn parse(text: &str) -> Result<Answer, AnswerError> {
    let mut warnings = Vec::new();
    match read(text, &mut warnings) {
        Ok((commands, task_complete)) => Ok(Answer { commands, task_complete, warnings }),
        Err(problem) => Err(AnswerError { problem, warnings }),
    }
}

fn read(text: &str, warnings: &mut Vec<String>) -> Result<(Vec<Command>, bool), String> {
    let found = json_object::find(text, |object| FIELDS.iter().any(|name| object.contains_key(*name)))
        .map_err(|error| error.to_string())?;
    if !found.before.trim().is_empty() {
        warnings.push("There is text before the JSON object; send the object alone.".into());
    }
    if !found.after.trim().is_empty() {
        warnings.push("There is text after the JSON object; send the object alone.".into());
    }
    if !found.appended.is_empty() {
        warnings.push(format!("The JSON object was not closed; {:?} was added at its end.", found.appended));
    }
    let object = &found.object;

    let missing: Vec<_> = REQUIRED.iter().filter(|name| !object.contains_key(**name)).copied().collect();
    if !missing.is_empty() {
        return Err(format!("These required fields are missing: {}.", missing.join(", ")));
    }
    for name in ["analysis", "plan"] {
        if object.get(name).is_some_and(|value| !value.is_string()) {
            warnings.push(format!("The field \"{name}\" should be a string."));
        }
    }
    check_order(object, warnings);

    let task_complete = read_task_complete(object, warnings);
    match read_commands(object, warnings) {
        Ok(commands) => Ok((commands, task_complete)),
        // An answer that only wants to end needs no commands.
        Err(problem) if task_complete => {
            warnings.push(format!("The commands were not run. {problem}"));
            Ok((Vec::new(), true))
        }
        Err(problem) => Err(problem),
    }
}

/// Top-level fields in their proper order, the required ones first.
const FIELDS: [&str; 4] = ["analysis", "plan", "commands", "task_complete"];
const REQUIRED: [&str; 3] = ["analysis", "plan", "commands"];

fn check_order(object: &Map<String, Value>, warnings: &mut Vec<String>) {
    let order = object.keys().filter_map(|key| REQUIRED.iter().position(|name| name == key));
    if !order.is_sorted() {
        warnings.push("The fields should come in this order: analysis, plan, commands.".into());
    }
}

fn read_task_complete(object: &Map<String, Value>, warnings: &mut Vec<String>) -> bool {
    match object.get("task_complete") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(complete)) => *complete,
        Some(Value::String(word)) => ["true", "1", "yes"].contains(&word.trim().to_lowercase().as_str()),
        Some(Value::Number(number)) => number.as_f64() == Some(1.0),
        Some(Value::Array(_) | Value::Object(_)) => {
            warnings
                .push("The field \"task_complete\" should be true or false; it was taken as false.".into());
            false
        }
    }
}

fn read_commands(object: &Map<String, Value>, warnings: &mut Vec<String>) -> Result<Vec<Command>, String> {
    let Some(Value::Array(list)) = object.get("commands") else {
        return Err("The field \"commands\" must be an array.".into());
    };
    let commands: Vec<_> = list
        .iter()
        .enumerate()
        .map(|(index, value)| read_command(index + 1, value, warnings))
        .collect::<Result<_, _>>()?;
    // Only a line break makes a shell run what was typed; without one the next command lands on the same line.
    for (index, command) in commands.iter().enumerate().take(commands.len().saturating_sub(1)) {
        if !command.keystrokes.is_empty() && !command.ends_a_line() {
            warnings.push(format!(
                "Command {} does not end with a line break, so the keystrokes after it continue its line.",
                index + 1
            ));
        }
    }
    Ok(commands)
}

impl Command {
    /// Whether nothing typed later can end up on this command's line.
    fn ends_a_line(&self) -> bool {
        self.keystrokes.ends_with(['\n', '\r']) || crate::keys::is_key(&self.keystrokes)
    }
}

/// `number` counts from one, as the model is told.
fn read_command(number: usize, value: &Value, warnings: &mut Vec<String>) -> Result<Command, String> {
    let Value::Object(fields) = value else {
        return Err(format!("Command {number} must be an object."));
    };
    let keystrokes = match fields.get("keystrokes") {
        Some(Value::String(keystrokes)) => keystrokes.clone(),
        Some(_) => return Err(format!("The \"keystrokes\" of command {number} must be a string.")),
        None => return Err(format!("Command {number} has no \"keystrokes\".")),
    };
    let wait = match fields.get("duration") {
        Some(Value::Number(seconds)) => seconds.as_f64().map(wait_of),
        Some(_) => None,
        None => {
            warnings.push(format!("Command {number} has no \"duration\"; 1.0 seconds was used."));
            Some(DEFAULT_WAIT)
        }
    };
    if wait.is_none() {
        warnings.push(format!("The \"duration\" of command {number} is not a number; 1.0 seconds was used."));
    }
    let unknown: Vec<_> =
        fields.keys().filter(|key| !["keystrokes", "duration"].contains(&key.as_str())).cloned().collect();
    if !unknown.is_empty() {
        warnings.push(format!(
            "Command {number} has unknown fields, which were ignored: {}.",
            unknown.join(", ")
        ));
    }
    Ok(Command { keystrokes, wait: wait.unwrap_or(DEFAULT_WAIT) })
}

fn wait_of(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.clamp(0.0, LONGEST_WAIT.as_secs_f64())).unwrap_or(DEFAULT_WAIT)
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;

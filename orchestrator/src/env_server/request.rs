//! Parses requests. Errors name the invalid field and the valid values.

use std::path::PathBuf;
use std::time::Duration;

use rolltap_agent::answer::{AnswerFormat, Command};
use rolltap_agent::terminal::TerminalSize;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::GymError;
use super::spec::TerminalKind;
use crate::common::suggest::{did_you_mean, nearest};
use crate::environment::EnvironmentKind;

/// The maximum lease: a week.
const LONGEST_LEASE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The terminal sizes that programs can handle and that need little memory.
const COLUMNS: std::ops::RangeInclusive<u16> = 10..=1000;
const ROWS: std::ops::RangeInclusive<u16> = 2..=500;

/// A parsed `POST /v1/envs`.
#[derive(Debug, PartialEq)]
pub(super) struct Create {
    pub(super) task: TaskPlace,
    /// `None` for the server's default.
    pub(super) environment: Option<EnvironmentKind>,
    pub(super) terminal: TerminalKind,
    pub(super) size: TerminalSize,
    /// `None` for the server's default.
    pub(super) lease: Option<Duration>,
    /// `None` if only the task's time limits the steps.
    pub(super) max_steps: Option<u32>,
    pub(super) format: AnswerFormat,
    /// Whether the episode ends only when two consecutive steps declare the task complete.
    pub(super) confirm_completion: bool,
}

/// The location of a task.
#[derive(Debug, PartialEq)]
pub(super) struct TaskPlace {
    /// The task's directory. For a task from git it is relative to the root of the repository, and empty for the root.
    pub(super) path: PathBuf,
    /// The repository. `None` for a task of this host.
    pub(super) git_url: Option<String>,
    pub(super) git_commit_id: Option<String>,
}

/// The action of a step.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// A model's answer, which is parsed as in the terminal agent.
    Answer(String),
    /// Keystrokes, and whether they complete the task.
    Commands { commands: Vec<Command>, task_complete: bool },
}

#[derive(Deserialize)]
struct CreateFields {
    task: Value,
    environment: Option<String>,
    terminal: Option<String>,
    width: Option<u16>,
    height: Option<u16>,
    lease_seconds: Option<f64>,
    max_steps: Option<u32>,
    format: Option<String>,
    #[serde(default)]
    confirm_completion: bool,
}

const CREATE: [&str; 9] = [
    "task",
    "environment",
    "terminal",
    "width",
    "height",
    "lease_seconds",
    "max_steps",
    "format",
    "confirm_completion",
];

#[derive(Deserialize)]
struct TaskFields {
    path: Option<PathBuf>,
    git_url: Option<String>,
    git_commit_id: Option<String>,
}

const TASK: [&str; 3] = ["path", "git_url", "git_commit_id"];

#[derive(Deserialize)]
struct StepFields {
    action: Value,
}

#[derive(Deserialize)]
struct CommandsFields {
    commands: Vec<Value>,
    #[serde(default)]
    task_complete: bool,
}

const COMMANDS: [&str; 2] = ["commands", "task_complete"];

#[derive(Deserialize)]
struct KeystrokesFields {
    keystrokes: String,
    duration: Option<f64>,
}

const KEYSTROKES: [&str; 2] = ["keystrokes", "duration"];
/// The default wait after keystrokes in seconds, as in the terminal agent.
const DEFAULT_DURATION: f64 = 1.0;

impl Create {
    pub(super) fn read(body: &[u8]) -> Result<Self, GymError> {
        let given: CreateFields = fields(json(body)?, "", &CREATE)?;
        let size = TerminalSize::default();
        let terminal = match given.terminal.as_deref() {
            Some(name) if one_of("terminal", name, &["screen", "tmux"])? == "tmux" => TerminalKind::Tmux,
            _ => TerminalKind::Screen,
        };
        let environment = match given.environment.as_deref() {
            None => None,
            Some(name) if one_of("environment", name, &["docker", "local"])? == "local" => {
                Some(EnvironmentKind::Local)
            }
            Some(_) => Some(EnvironmentKind::Docker),
        };
        let format = match given.format.as_deref() {
            None => AnswerFormat::default(),
            Some(name) => one_of("format", name, &["json", "xml"])?.parse().map_err(GymError::BadRequest)?,
        };
        if given.max_steps == Some(0) {
            return Err(wrong("max_steps", "0", "a number from 1 on, or nothing"));
        }
        Ok(Self {
            task: TaskPlace::read(given.task)?,
            environment,
            terminal,
            size: TerminalSize {
                cols: within("width", given.width.unwrap_or(size.cols), &COLUMNS)?,
                rows: within("height", given.height.unwrap_or(size.rows), &ROWS)?,
            },
            lease: given.lease_seconds.map(lease).transpose()?,
            max_steps: given.max_steps,
            format,
            confirm_completion: given.confirm_completion,
        })
    }
}

impl TaskPlace {
    fn read(task: Value) -> Result<Self, GymError> {
        if let Value::String(path) = task {
            return Ok(Self { path: path.into(), git_url: None, git_commit_id: None });
        }
        let TaskFields { path, git_url, git_commit_id } = fields(task, "task", &TASK)?;
        let path = match (path, &git_url, &git_commit_id) {
            (_, None, Some(_)) => {
                return Err(GymError::BadRequest("task.git_commit_id goes with task.git_url".to_owned()));
            }
            (None, None, None) => {
                return Err(GymError::BadRequest(
                    "task has no path, which is that of its directory".to_owned(),
                ));
            }
            // Without a path the task is the root of its repository.
            (path, ..) => path.unwrap_or_default(),
        };
        Ok(Self { path, git_url, git_commit_id })
    }
}

impl Action {
    /// Parses the body of a step.
    pub(super) fn read(body: &[u8]) -> Result<Self, GymError> {
        let StepFields { action } = fields(json(body)?, "", &["action"])?;
        match action {
            Value::String(answer) => Ok(Self::Answer(answer)),
            Value::Object(object) if object.contains_key("keystrokes") => {
                let command = command(Value::Object(object), "action")?;
                Ok(Self::Commands { commands: vec![command], task_complete: false })
            }
            Value::Object(object) => {
                // An unknown field is checked against both forms, so that a mistyped `keystrokes` is suggested too.
                let known: Vec<_> = COMMANDS.into_iter().chain(KEYSTROKES).collect();
                must_be_known(&object, "action", &known)?;
                let CommandsFields { commands, task_complete } =
                    fields(Value::Object(object), "action", &COMMANDS)?;
                let read = |(at, value)| command(value, &format!("action.commands[{at}]"));
                let commands = commands.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
                Ok(Self::Commands { commands, task_complete })
            }
            other => Err(wrong(
                "action",
                kind_of(&other),
                "a model's answer as a string, {\"keystrokes\": …} or {\"commands\": […]}",
            )),
        }
    }
}

/// Parses the body of a call without fields.
pub(super) fn nothing(body: &[u8]) -> Result<(), GymError> {
    #[derive(Deserialize)]
    struct Nothing {}
    // An absent body is equivalent to `{}`.
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let Nothing {} = fields(json(body)?, "", &[])?;
    Ok(())
}

fn command(value: Value, place: &str) -> Result<Command, GymError> {
    let KeystrokesFields { keystrokes, duration } = fields(value, place, &KEYSTROKES)?;
    Ok(Command::new(keystrokes, duration.unwrap_or(DEFAULT_DURATION)))
}

fn lease(seconds: f64) -> Result<Duration, GymError> {
    // Negative and non-finite numbers give `None`.
    let lease = Duration::try_from_secs_f64(seconds).ok();
    lease
        .filter(|lease| (Duration::from_secs(1)..=LONGEST_LEASE).contains(lease))
        .ok_or_else(|| wrong("lease_seconds", &seconds.to_string(), "seconds, from 1 to 604800 (a week)"))
}

fn within(field: &str, value: u16, range: &std::ops::RangeInclusive<u16>) -> Result<u16, GymError> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(wrong(field, &value.to_string(), &format!("a number from {} to {}", range.start(), range.end())))
}

fn one_of<'k>(field: &str, given: &str, known: &[&'k str]) -> Result<&'k str, GymError> {
    if let Some(name) = known.iter().find(|name| **name == given) {
        return Ok(name);
    }
    let hint = did_you_mean(nearest(given, known.iter().copied()));
    let expected = format!("{}{hint}", known.join(" or "));
    Err(wrong(field, &format!("{given:?}"), &expected))
}

fn wrong(field: &str, given: &str, expected: &str) -> GymError {
    GymError::BadRequest(format!("{field} is {given}; expected {expected}"))
}

fn json(body: &[u8]) -> Result<Value, GymError> {
    serde_json::from_slice(body)
        .map_err(|error| GymError::BadRequest(format!("the request's body is not JSON: {error}")))
}

/// Deserializes an object and rejects unknown fields. `place` is its path in the request, empty for the request itself.
fn fields<T: DeserializeOwned>(value: Value, place: &str, known: &[&str]) -> Result<T, GymError> {
    match &value {
        Value::Object(object) => must_be_known(object, place, known)?,
        other => {
            let place = if place.is_empty() { "the request's body" } else { place };
            return Err(wrong(place, kind_of(other), "an object"));
        }
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = match error.path().to_string() {
            // The path `.` is the value itself.
            path if path == "." => place.to_owned(),
            path if place.is_empty() => path,
            path => format!("{place}.{path}"),
        };
        let problem = error.into_inner();
        GymError::BadRequest(if path.is_empty() { problem.to_string() } else { format!("{path}: {problem}") })
    })
}

fn must_be_known(object: &Map<String, Value>, place: &str, known: &[&str]) -> Result<(), GymError> {
    let Some(unknown) = object.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
    let place = if place.is_empty() { "the request".to_owned() } else { place.to_owned() };
    let hint = match (nearest(unknown, known.iter().copied()), known) {
        (Some(near), _) => format!("did you mean {near:?}?"),
        (None, []) => "it takes none".to_owned(),
        (None, _) => format!("it may have {}", known.join(", ")),
    };
    Err(GymError::BadRequest(format!("{place} has an unknown field {unknown:?}; {hint}")))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;

//! Runs a task's tests where the agent worked, and reads the reward that they leave, by Harbor's rules.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rolltap_rollout::rollout::Reward;
use serde_json::Value;

use crate::environment::{Downloaded, Environment, EnvironmentError, Exec, ExecOutput, LogDirs};
use crate::task::Task;

/// The rewards from the tests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rewards {
    /// The entries of the reward file. All are finite.
    pub rewards: BTreeMap<String, f64>,
    /// The number that trainers use: the entry `reward`, or else the only entry. `None` otherwise.
    pub reward: Option<f64>,
}

impl From<BTreeMap<String, f64>> for Rewards {
    fn from(rewards: BTreeMap<String, f64>) -> Self {
        let Reward { rewards, reward, .. } = Reward::from_named(rewards);
        Self { rewards, reward }
    }
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum VerifierError {
    /// The tests left no reward.
    #[error(
        "tests/test.sh left neither reward.json nor reward.txt in /logs/verifier (exit code {}); its output is in {}",
        exit(.exit_code), .output.display()
    )]
    RewardFileNotFound {
        /// The exit code of `test.sh`.
        exit_code: Option<i64>,
        /// The path of its output on this host.
        output: PathBuf,
    },
    /// The tests left an empty file.
    #[error("{0} is empty")]
    RewardFileEmpty(&'static str),
    /// The tests left a file that is not a reward.
    #[error("{file}: {problem}; expected {expected}")]
    OutputParse {
        /// The file.
        file: &'static str,
        /// The problem.
        problem: String,
        /// The expected content.
        expected: &'static str,
    },
    /// The tests left a single number in the file for objects. Harbor has an exception of its own for this.
    #[error("reward.json: {0} is no object; expected one, such as {{\"reward\": {0}}}, or else reward.txt")]
    NoObject(String),
    /// The tests took too long.
    #[error(
        "the tests were still running after {seconds} s; their output is in {}", .output.display()
    )]
    Timeout {
        /// The time limit.
        seconds: f64,
        /// The path of the output on this host.
        output: PathBuf,
    },
    /// The environment failed, not the tests.
    #[error("the environment failed during verification")]
    Environment(#[from] EnvironmentError),
    /// This host failed.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

fn exit(code: &Option<i64>) -> String {
    code.map_or_else(|| "unknown".to_owned(), |code| code.to_string())
}

impl VerifierError {
    /// Returns the name of Harbor's exception for this error.
    pub fn failure_cause(&self) -> &'static str {
        match self {
            Self::RewardFileNotFound { .. } => "RewardFileNotFoundError",
            Self::RewardFileEmpty(_) => "RewardFileEmptyError",
            Self::OutputParse { .. } => "VerifierOutputParseError",
            Self::NoObject(_) => "ValidationError",
            Self::Timeout { .. } => "VerifierTimeoutError",
            Self::Environment(_) | Self::Io { .. } => "RuntimeError",
        }
    }
}

const JSON: &str = "reward.json";
const TEXT: &str = "reward.txt";
const OUTPUT: &str = "test-stdout.txt";
/// A marker that the script prints if the tests did not begin.
const NOT_READY: &str = "rolltap-not-ready";

/// Uploads `tests/`, runs `test.sh`, downloads all logs, and reads the reward. The output of the tests goes to
/// `logs.verifier`, with all files that they left in `/logs/verifier`.
///
/// The exit code of `test.sh` does not count. Rewards from before the tests do not count either.
///
/// # Errors
/// Fails if there is no valid reward, the time limit passes, or the environment or this host fails.
pub async fn verify(
    task: &Task,
    env: &Environment,
    logs: &LogDirs,
    limit: Option<Duration>,
) -> Result<Rewards, VerifierError> {
    let separate = task.separate_verifier.as_deref();
    upload(task, env, logs).await?;
    remove_stale(&logs.verifier).await?;
    let run = run_tests(task, env, limit).await?;
    let downloaded = match separate {
        // The other log directories of this environment have no files of the agent.
        Some(_) => env.download(&env.paths().verifier_logs, &logs.verifier).await,
        None => fetch(env, logs).await,
    };
    let output = logs.verifier.join(OUTPUT);
    // The output is written even after a failed download, because the errors below refer to it.
    let written = tokio::fs::write(&output, &run.stdout).await;
    written.map_err(|source| VerifierError::Io { action: "write", path: output.clone(), source })?;
    if run.timed_out {
        return Err(VerifierError::Timeout { seconds: limit.unwrap_or_default().as_secs_f64(), output });
    }
    match downloaded {
        // A directory that the tests removed is the same as an empty one.
        Ok(_) | Err(EnvironmentError::NoSuchPath(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let rewards = parse(read(&logs.verifier, JSON)?.as_deref(), read(&logs.verifier, TEXT)?.as_deref())?;
    let rewards = rewards.ok_or(VerifierError::RewardFileNotFound { exit_code: run.exit_code, output })?;
    Ok(Rewards::from(rewards))
}

/// Uploads the tests, unless they are in the image. Uploads the agent's logs of this host too, for tests that inspect
/// how the agent worked.
async fn upload(task: &Task, env: &Environment, logs: &LogDirs) -> Result<(), EnvironmentError> {
    let separate = task.separate_verifier.as_deref();
    let paths = env.paths();
    let mut contents: Vec<(&Path, &str)> = Vec::new();
    if !separate.is_some_and(|separate| separate.has_tests) {
        let there = task.tests_dirs().filter(|dir| dir.is_dir());
        contents.extend(there.map(|dir| (dir, paths.tests.as_str())));
    }
    let has_logs = || logs.agent.read_dir().is_ok_and(|mut dir| dir.next().is_some());
    if separate.is_none() && has_logs() {
        let with_logs = [&[(logs.agent.as_path(), paths.agent_logs.as_str())], contents.as_slice()].concat();
        match env.upload_all(&with_logs).await {
            Ok(()) => return Ok(()),
            Err(error) => tracing::warn!(%error, "the tests do not see the agent's logs"),
        }
    }
    if contents.is_empty() { Ok(()) } else { env.upload_all(&contents).await }
}

/// Downloads all logs. If they are too large, downloads only the verifier's, which have the reward.
async fn fetch(env: &Environment, logs: &LogDirs) -> Result<Downloaded, EnvironmentError> {
    match env.download_logs(logs).await {
        Err(error @ EnvironmentError::TooLarge { .. }) => {
            tracing::warn!(%error, "the logs are not collected whole");
            env.download(&env.paths().verifier_logs, &logs.verifier).await
        }
        fetched => fetched,
    }
}

/// Runs the tests. Before, removes rewards that the agent may have left, and makes the script executable as root. The
/// `stdout` of the result has all output of the tests. If possible this is one command, because each command costs
/// about 50 ms.
async fn run_tests(
    task: &Task,
    env: &Environment,
    limit: Option<Duration>,
) -> Result<ExecOutput, VerifierError> {
    let (tests, dir, paths) = (&env.paths().tests, &env.paths().verifier_logs, env.paths());
    // The agent may have removed these directories.
    let there = [&paths.agent_logs, dir, &paths.artifacts]
        .map(|dir| {
            format!(
                "{{ [ -d '{dir}' ] || {{ rm -rf '{dir}' && mkdir -p '{dir}' && chmod 777 '{dir}'; }}; }} && "
            )
        })
        .concat();
    let make_ready = format!(
        "{there}rm -rf '{dir}/{JSON}' '{dir}/{TEXT}' && chmod +x '{tests}/test.sh' || {{ echo {NOT_READY} >&2; exit 1; }}"
    );
    let run = format!("exec 2>&1; '{tests}/test.sh'");
    let config = &task.config.verifier;
    let tests =
        Exec { env: config.env.clone(), user: config.user.clone(), timeout: limit, ..Exec::default() };
    let output = if env.runs_as_root(config.user.as_deref()) {
        env.exec(Exec { command: format!("{make_ready}\n{run}"), ..tests }).await?
    } else {
        let root = Exec { command: make_ready, user: Some("0".to_owned()), ..Exec::default() };
        let ready = env.exec(root).await?;
        if ready.exit_code == Some(0) { env.exec(Exec { command: run, ..tests }).await? } else { ready }
    };
    // The tests' standard error is redirected, so this text is not theirs. A shell may also complain here about a
    // locale.
    let complaint = String::from_utf8_lossy(&output.stderr);
    match complaint.trim_end().strip_suffix(NOT_READY) {
        Some(message) => Err(EnvironmentError::NotReady(message.trim().to_owned()).into()),
        None => Ok(output),
    }
}

/// Removes the rewards of an earlier verification on this host.
async fn remove_stale(logs: &Path) -> Result<(), VerifierError> {
    for file in [JSON, TEXT] {
        let path = logs.join(file);
        match tokio::fs::remove_file(&path).await {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                return Err(VerifierError::Io { action: "remove", path, source });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads a file of the logs, or returns `None` if it does not exist. A link is not followed, because the agent may have
/// made it.
fn read(logs: &Path, file: &'static str) -> Result<Option<Vec<u8>>, VerifierError> {
    let path = logs.join(file);
    if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Ok(None);
    }
    let contents =
        std::fs::read(&path).map_err(|source| VerifierError::Io { action: "read", path, source })?;
    Ok(Some(contents))
}

/// Parses the rewards of `reward.json`, or else of `reward.txt`. Returns `None` if neither exists. The rules are those
/// of Harbor's verifier.
///
/// # Errors
/// Fails if the file that counts is empty or holds anything but finite numbers.
pub fn parse(
    json: Option<&[u8]>,
    text: Option<&[u8]>,
) -> Result<Option<BTreeMap<String, f64>>, VerifierError> {
    match (json, text) {
        (Some([]), _) => Err(VerifierError::RewardFileEmpty(JSON)),
        (Some(json), _) => parse_json(json).map(Some),
        (None, Some([])) => Err(VerifierError::RewardFileEmpty(TEXT)),
        (None, Some(text)) => parse_text(text).map(Some),
        (None, None) => Ok(None),
    }
}

fn parse_text(text: &[u8]) -> Result<BTreeMap<String, f64>, VerifierError> {
    let wrong = |problem| VerifierError::OutputParse { file: TEXT, problem, expected: "one finite number" };
    let text = std::str::from_utf8(text).map_err(|_| wrong("not UTF-8 text".to_owned()))?.trim();
    let number = python_float(text).filter(|number| number.is_finite());
    let reward = number.ok_or_else(|| wrong(format!("{:?} is no finite number", shortened(text))))?;
    Ok(BTreeMap::from([("reward".to_owned(), reward)]))
}

/// Parses a number as Python's `float` does: Rust's format, with underscores between digits.
fn python_float(text: &str) -> Option<f64> {
    let is_digit =
        |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at)).is_some_and(u8::is_ascii_digit);
    let between_digits = |at: usize| is_digit(at.checked_sub(1)) && is_digit(at.checked_add(1));
    if !text.match_indices('_').all(|(at, _)| between_digits(at)) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

fn parse_json(json: &[u8]) -> Result<BTreeMap<String, f64>, VerifierError> {
    let expected = "an object of finite numbers, such as {\"reward\": 0.5}";
    let wrong = |problem| VerifierError::OutputParse { file: JSON, problem, expected };
    let value = serde_json::from_slice(json).map_err(|error| wrong(format!("not JSON: {error}")))?;
    let entries = match value {
        Value::Object(entries) => entries,
        Value::Number(_) | Value::Bool(_) => return Err(VerifierError::NoObject(value.to_string())),
        other => return Err(wrong(format!("{} is no object", shortened(&other.to_string())))),
    };
    let number = |(name, value): (String, Value)| {
        let number = match &value {
            Value::Number(number) => number.as_f64().filter(|number| number.is_finite()),
            // In Python a boolean is a number.
            Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
            _ => None,
        };
        match number {
            Some(number) => Ok((name, number)),
            None => Err(wrong(format!("{name:?} is {}", shortened(&value.to_string())))),
        }
    };
    entries.into_iter().map(number).collect()
}

fn shortened(text: &str) -> String {
    const LENGTH: usize = 100;
    let mut short: String = text.chars().take(LENGTH).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests;

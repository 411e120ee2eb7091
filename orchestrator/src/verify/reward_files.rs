//! Reads the reward files that a task's tests leave, by Harbor's rules.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use serde_json::Value;

use super::VerifierError;

pub(super) const JSON: &str = "reward.json";
pub(super) const TEXT: &str = "reward.txt";

/// Removes the rewards of an earlier verification on this host.
pub(super) async fn remove_stale(logs: &Path) -> Result<(), VerifierError> {
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
pub(super) fn read(logs: &Path, file: &'static str) -> Result<Option<Vec<u8>>, VerifierError> {
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

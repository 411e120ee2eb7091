//! Parsers of option values that several subcommands share.

use rolltap_rollout::ids::RewardVersion;
use serde_json::{Map, Value};

/// Parses the name of a version of rewards.
pub(crate) fn reward_version(text: &str) -> Result<RewardVersion, String> {
    RewardVersion::new(text).map_err(|error| error.to_string())
}

pub(crate) fn json_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))
}

/// Parses `NAME=VALUE`. A value that is valid JSON is JSON, and any other value is text, as in Harbor.
pub(crate) fn option(text: &str) -> Result<(String, Value), String> {
    let (name, value) = variable(text)?;
    Ok((name, serde_json::from_str(&value).unwrap_or(Value::String(value))))
}

pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

//! Parsers of option values that several subcommands share.

use rolltap_rollout::ids::RewardVersion;
use std::num::{IntErrorKind, NonZeroU128, NonZeroUsize};
use std::str::FromStr;

use serde::de::DeserializeOwned;
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

/// Parses a whole number that is not 0.
pub(crate) fn one_or_more<T: FromStr>(text: &str) -> Result<T, String> {
    match text.parse::<NonZeroU128>() {
        Ok(_) => text.parse().map_err(|_| "the number is too large".to_owned()),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Err("the number is too large".to_owned()),
        Err(_) => Err("expected a whole number of at least 1".to_owned()),
    }
}

/// The number of trials that run at once for each core, if `auto` has no number.
const AUTO_PER_CORE: usize = 16;

/// The number of trials that run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Concurrency {
    pub(crate) most: NonZeroUsize,
    /// Whether fewer run where more would not fit into the KV caches of the upstreams.
    pub(crate) is_auto: bool,
}

/// Parses a whole number that is not 0, `auto`, or `auto:NUMBER`.
pub(crate) fn concurrency(text: &str) -> Result<Concurrency, String> {
    let most = match text.strip_prefix("auto") {
        Some("") => {
            let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
            cores.saturating_mul(NonZeroUsize::MIN.saturating_add(AUTO_PER_CORE - 1))
        }
        Some(rest) => match rest.strip_prefix(':') {
            Some(most) => one_or_more(most)?,
            None => return Err("expected auto, or auto:NUMBER".to_owned()),
        },
        None => one_or_more(text).map_err(|problem| format!("{problem}, or auto"))?,
    };
    Ok(Concurrency { most, is_auto: text.starts_with("auto") })
}

/// Parses a whole number that may be 0.
pub(crate) fn whole(text: &str) -> Result<u32, String> {
    text.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => "the number is too large".to_owned(),
        _ => "expected a whole number of at least 0".to_owned(),
    })
}

/// Parses a number above 0.
pub(crate) fn factor(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

/// Parses a number.
pub(crate) fn finite(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| "expected a number".to_owned())
}

/// Parses JSON of a certain form.
pub(crate) fn json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON of this form: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused_with_the_range() {
        assert_eq!(one_or_more::<u32>("4294967295"), Ok(u32::MAX));
        for text in ["0", "-1", "", "many", "1.5"] {
            assert_eq!(
                one_or_more::<u32>(text),
                Err("expected a whole number of at least 1".to_owned()),
                "{text}"
            );
        }
        for text in ["4294967296", &"9".repeat(60)] {
            assert_eq!(one_or_more::<u32>(text), Err("the number is too large".to_owned()), "{text}");
        }
        assert_eq!((whole("0"), factor("0.5")), (Ok(0), Ok(0.5)));
        assert!(
            whole("-1").is_err() && factor("0").is_err() && factor("inf").is_err() && factor("NaN").is_err()
        );
    }
}

//! Fields that several tables of `task.toml` share.

use serde::{Deserialize, Deserializer};

use super::lax::number;

/// The network access of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// Every host.
    Public,
    /// No host except the trial's model.
    NoNetwork,
    /// The hosts in `allowed_hosts` and the trial's model.
    Allowlist,
}

/// A command that checks whether an environment is ready. It is run until it exits with 0.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct Healthcheck {
    /// The shell command.
    pub command: String,
    /// Seconds between the end of a failed check and the next check.
    #[serde(deserialize_with = "number")]
    pub interval_sec: f64,
    /// The limit in seconds for one check.
    #[serde(deserialize_with = "number")]
    pub timeout_sec: f64,
    /// Seconds from the start in which failures do not count.
    #[serde(deserialize_with = "number")]
    pub start_period_sec: f64,
    /// As [`Self::interval_sec`], during the start period.
    #[serde(deserialize_with = "number")]
    pub start_interval_sec: f64,
    /// The number of consecutive failures after which the environment has failed.
    #[serde(deserialize_with = "number")]
    pub retries: u32,
}

impl Default for Healthcheck {
    fn default() -> Self {
        Self {
            command: String::new(),
            interval_sec: 5.0,
            timeout_sec: 30.0,
            start_period_sec: 0.0,
            start_interval_sec: 5.0,
            retries: 3,
        }
    }
}

/// Deserializes a user name, or a numeric user id.
pub(super) fn user<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    struct User;
    impl serde::de::Visitor<'_> for User {
        type Value = String;
        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("a user name or a user id")
        }
        fn visit_str<E>(self, name: &str) -> Result<String, E> {
            Ok(name.to_owned())
        }
        fn visit_i64<E: serde::de::Error>(self, id: i64) -> Result<String, E> {
            u32::try_from(id).map(|id| id.to_string()).map_err(|_| {
                E::invalid_value(serde::de::Unexpected::Signed(id), &"a user id from 0 to 4294967295")
            })
        }
    }
    deserializer.deserialize_any(User).map(Some)
}

//! What several tables of `task.toml` have in common.

use serde::{Deserialize, Deserializer};

/// What may be reached over the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// Everything.
    Public,
    /// Nothing.
    NoNetwork,
    /// `allowed_hosts` alone.
    Allowlist,
}

/// A command that tells whether an environment is ready, run until it ends with 0.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct Healthcheck {
    /// The command.
    pub command: String,
    /// Seconds from the end of a failed check to the next one.
    pub interval_sec: f64,
    /// Seconds that one check may take.
    pub timeout_sec: f64,
    /// Seconds from the beginning in which failures do not count.
    pub start_period_sec: f64,
    /// As [`Self::interval_sec`], in the start period.
    pub start_interval_sec: f64,
    /// So many failures one after the other are final.
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

/// A user name, or an id as a number.
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

//! The setting that decides between two goals: follow the chat template exactly, or preserve the sampled tokens.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the proxy treats the tokens of earlier turns when an agent sends them back as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// Tokens are preserved if the template shows the same answer, in any spelling. If the template rewrites the answer
    /// (for example removes earlier reasoning), the template's text is used and a branch starts.
    #[default]
    Faithful,
    /// Tokens are preserved in every conversation that only grows, so the context holds exactly the policy's output.
    Sampled,
    /// The server renders every prompt anew.
    Off,
}

/// An unknown name of a history mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no way to treat history: it may be faithful, sampled or off")]
pub struct InvalidHistory(String);

impl History {
    /// The names of the modes in configurations and flags.
    pub const NAMES: [&str; 3] = ["faithful", "sampled", "off"];
}

impl FromStr for History {
    type Err = InvalidHistory;

    fn from_str(name: &str) -> Result<Self, InvalidHistory> {
        match name {
            "faithful" => Ok(Self::Faithful),
            "sampled" => Ok(Self::Sampled),
            "off" => Ok(Self::Off),
            other => Err(InvalidHistory(other.to_owned())),
        }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Faithful => "faithful",
            Self::Sampled => "sampled",
            Self::Off => "off",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_has_one_name_everywhere() {
        for name in History::NAMES {
            let mode: History = name.parse().unwrap();
            assert_eq!(mode.to_string(), name);
            assert_eq!(serde_json::to_string(&mode).unwrap(), format!("\"{name}\""));
        }
        assert!("on".parse::<History>().unwrap_err().to_string().contains("faithful, sampled or off"));
    }
}

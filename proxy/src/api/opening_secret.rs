//! The secret by which the opening of a trial can be repeated.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The lengths of a secret in characters.
const LENGTHS: std::ops::RangeInclusive<usize> = 32..=128;
/// The random bytes of a generated secret.
const RANDOM_BYTES: usize = 32;

/// A secret that the client of one opening knows: 32 to 128 visible ASCII characters. The key of the trial is derived from it,
/// so a repeated opening has the same key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^[!-~]{32,128}$"))]
pub struct OpeningSecret(String);

/// A text that is no secret of an opening.
#[derive(Debug, thiserror::Error)]
#[error("an idempotency_key of a trial has 32 to 128 visible ASCII characters, which nobody can guess")]
pub struct InvalidOpeningSecret;

impl OpeningSecret {
    /// Generates a secret from 256 random bits. `None` if the system has no randomness.
    pub fn generate() -> Option<Self> {
        let mut bytes = [0_u8; RANDOM_BYTES];
        getrandom::fill(&mut bytes).ok()?;
        Some(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Returns the secret as bytes, from which the key is derived.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl TryFrom<String> for OpeningSecret {
    type Error = InvalidOpeningSecret;

    fn try_from(text: String) -> Result<Self, InvalidOpeningSecret> {
        let is_valid = LENGTHS.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_valid.then_some(Self(text)).ok_or(InvalidOpeningSecret)
    }
}

impl From<OpeningSecret> for String {
    fn from(secret: OpeningSecret) -> Self {
        secret.0
    }
}

// Not derived: logs must not contain the secret.
impl fmt::Debug for OpeningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpeningSecret(…)")
    }
}

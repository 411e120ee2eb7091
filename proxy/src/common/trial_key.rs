//! The key of a trial, and its hash for the store.

use std::fmt;

use sha2::{Digest, Sha256};

/// The secret that identifies one trial: `sk-` and 64 hexadecimal digits.
///
/// The prefix is that of OpenAI keys, because some agents reject other keys. The key is longer than the dummy keys that
/// agents also send. It does not name the proxy, because an agent that knows of a proxy may behave differently.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TrialKey(String);

const PREFIX: &str = "sk-";
const SECRET_BYTES: usize = 32;

/// The SHA-256 hash of a key, as the store holds it. A reader of the store cannot make calls with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct KeyHash([u8; 32]);

/// Why a request cannot be assigned to a trial.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdentityError {
    #[error(
        "no trial key: put it in the path (/t/KEY/v1/…) or in the Authorization, x-api-key, api-key or x-goog-api-key header"
    )]
    Missing,
    #[error("the request carries two different trial keys in its headers: send one")]
    Conflicting,
    #[error("the key in the path is not of the form of a trial key")]
    Malformed,
    #[error("no trial has this key")]
    Unknown,
}

impl TrialKey {
    /// Generates a key from 256 random bits.
    pub(crate) fn generate() -> Result<Self, getrandom::Error> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret)?;
        Ok(Self::of_secret(secret))
    }

    /// Derives a key from a secret. Each number gives another key.
    pub(crate) fn derived(secret: &[u8], number: u64) -> Self {
        let mut digest = Sha256::new_with_prefix(b"rolltap trial key");
        digest.update(number.to_be_bytes());
        digest.update(secret);
        Self::of_secret(digest.finalize().into())
    }

    fn of_secret(secret: [u8; SECRET_BYTES]) -> Self {
        Self(secret.iter().fold(PREFIX.to_owned(), |key, byte| key + &format!("{byte:02x}")))
    }

    /// Parses a key that has the form of generated keys. Returns `None` for other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let secret = text.strip_prefix(PREFIX)?;
        // The form is checked exactly, so that the dummy keys of agents are not taken for trial keys.
        let is_secret = secret.len() == 2 * SECRET_BYTES && secret.bytes().all(|b| b.is_ascii_hexdigit());
        is_secret.then(|| Self(text.to_owned()))
    }

    /// Accepts any text that is not empty, for proxies that open a trial for keys of any form.
    pub(crate) fn of_any(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    /// Returns the key as text, for the client that opened the trial.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn hash(&self) -> KeyHash {
        KeyHash(Sha256::digest(self.0.as_bytes()).into())
    }
}

impl KeyHash {
    pub(crate) fn bytes(self) -> [u8; 32] {
        self.0
    }

    /// Returns the first 6 bytes as hexadecimal digits, to name a trial. They reveal nothing about the key.
    pub(crate) fn short(&self) -> String {
        self.0.iter().take(6).fold(String::new(), |name, byte| name + &format!("{byte:02x}"))
    }
}

impl fmt::Debug for TrialKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TrialKey(…)")
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_printed() {
        let key = TrialKey::generate().unwrap();
        assert!(!format!("{key:?} {:?}", key.hash()).contains(&key.reveal()[20..30]));
    }
}

//! Which trial a request belongs to: the key in its path or its headers.

use std::fmt;

use http::{HeaderMap, header};
use sha2::{Digest, Sha256};

/// The secret that stands for one trial.
///
/// `sk-` and 64 hexadecimal digits: it begins like an OpenAI key, because some agents refuse others, is longer than the
/// dummies that agents also send, and does not name the proxy, because an agent that knows of it may behave otherwise.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TrialKey(String);

const PREFIX: &str = "sk-";
const SECRET_BYTES: usize = 32;

/// A key as it is kept: whoever reads the store cannot call with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct KeyHash([u8; 32]);

/// Why a request belongs to no trial.
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
    /// A new secret of 256 bits.
    pub(crate) fn generate() -> Result<Self, getrandom::Error> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret)?;
        Ok(Self(secret.iter().fold(PREFIX.to_owned(), |key, byte| key + &format!("{byte:02x}"))))
    }

    fn parse(text: &str) -> Option<Self> {
        let secret = text.strip_prefix(PREFIX)?;
        let is_secret = secret.len() == 2 * SECRET_BYTES && secret.bytes().all(|b| b.is_ascii_hexdigit());
        is_secret.then(|| Self(text.to_owned()))
    }

    /// Whatever text stands where a key belongs, for a proxy that opens trials for any.
    fn of_any(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    /// The key itself, for the one who opened the trial.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn hash(&self) -> KeyHash {
        KeyHash(Sha256::digest(self.0.as_bytes()).into())
    }
}

impl KeyHash {
    /// Enough of it to name a trial by; says nothing of the key.
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

/// A request path without its key: `/t/KEY/v1/models` → (`KEY`, `/v1/models`).
pub(crate) fn split_path(path: &str) -> (Option<&str>, &str) {
    let Some(rest) = path.strip_prefix("/t/") else { return (None, path) };
    match rest.find('/') {
        Some(slash) => (rest.get(..slash), rest.get(slash..).unwrap_or_default()),
        None => (Some(rest), ""),
    }
}

/// The key of a request. The path wins; a header counts only if it has the form of a rolltap key.
pub(crate) fn key_of(in_path: Option<&str>, headers: &HeaderMap) -> Result<TrialKey, IdentityError> {
    if let Some(text) = in_path {
        return TrialKey::parse(text).ok_or(IdentityError::Malformed);
    }
    let mut keys = credentials(headers).filter_map(TrialKey::parse);
    let key = keys.next().ok_or(IdentityError::Missing)?;
    if keys.all(|other| other == key) { Ok(key) } else { Err(IdentityError::Conflicting) }
}

/// The key of a request where any text is one. Those of our own form still come before dummies.
pub(crate) fn any_key_of(in_path: Option<&str>, headers: &HeaderMap) -> Result<TrialKey, IdentityError> {
    match key_of(in_path, headers) {
        Err(IdentityError::Malformed) => in_path.and_then(TrialKey::of_any).ok_or(IdentityError::Malformed),
        Err(IdentityError::Missing) => {
            credentials(headers).find_map(TrialKey::of_any).ok_or(IdentityError::Missing)
        }
        known => known,
    }
}

fn credentials(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let bearer = headers.get_all(header::AUTHORIZATION).iter().filter_map(|value| {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    let plain = ["x-api-key", "api-key", "x-goog-api-key"]
        .into_iter()
        .flat_map(|name| headers.get_all(name))
        .filter_map(|value| value.to_str().ok().map(str::trim));
    bearer.chain(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn the_path_wins_over_headers() {
        let (path, header) = (TrialKey::generate().unwrap(), TrialKey::generate().unwrap());
        let headers = headers(&[("x-api-key", header.reveal())]);
        assert_eq!(key_of(Some(path.reveal()), &headers), Ok(path));
        assert_eq!(key_of(None, &headers), Ok(header));
    }

    #[test]
    fn every_header_spelling_counts_and_dummies_do_not() {
        let key = TrialKey::generate().unwrap();
        let bearer = format!("bearer {}", key.reveal());
        for pair in [
            ("authorization", &*bearer),
            ("x-api-key", key.reveal()),
            ("api-key", key.reveal()),
            ("x-goog-api-key", key.reveal()),
        ] {
            let with_dummies = headers(&[pair, ("authorization", "Bearer sk-dummy"), ("x-api-key", "x")]);
            assert_eq!(key_of(None, &with_dummies), Ok(key.clone()), "{}", pair.0);
        }
        assert_eq!(
            key_of(None, &headers(&[("authorization", "Bearer sk-dummy")])),
            Err(IdentityError::Missing)
        );
    }

    #[test]
    fn where_any_text_is_a_key_ours_still_comes_first() {
        let key = TrialKey::generate().unwrap();
        let both = headers(&[("authorization", "Bearer EMPTY"), ("x-api-key", key.reveal())]);
        assert_eq!(any_key_of(None, &both), Ok(key));
        let dummy = any_key_of(None, &headers(&[("authorization", "Bearer EMPTY")])).unwrap();
        assert_eq!(any_key_of(Some("EMPTY"), &HeaderMap::new()), Ok(dummy));
        assert_eq!(any_key_of(None, &HeaderMap::new()), Err(IdentityError::Missing));
        assert_eq!(any_key_of(Some(""), &HeaderMap::new()), Err(IdentityError::Malformed));
    }

    #[test]
    fn two_different_keys_are_refused() {
        let (one, other) = (TrialKey::generate().unwrap(), TrialKey::generate().unwrap());
        let both = headers(&[("x-api-key", one.reveal()), ("api-key", other.reveal())]);
        assert_eq!(key_of(None, &both), Err(IdentityError::Conflicting));
        let twice = headers(&[("x-api-key", one.reveal()), ("api-key", one.reveal())]);
        assert_eq!(key_of(None, &twice), Ok(one));
    }

    #[test]
    fn the_path_is_split_behind_the_key() {
        assert_eq!(split_path("/v1/models"), (None, "/v1/models"));
        assert_eq!(split_path("/t/k/v1/models"), (Some("k"), "/v1/models"));
        assert_eq!(split_path("/t/k"), (Some("k"), ""));
        assert_eq!(split_path("/t/"), (Some(""), ""));
        assert_eq!(key_of(Some("k"), &HeaderMap::new()), Err(IdentityError::Malformed));
    }

    #[test]
    fn a_key_is_not_printed() {
        let key = TrialKey::generate().unwrap();
        assert!(!format!("{key:?} {:?}", key.hash()).contains(&key.reveal()[20..30]));
    }

    proptest! {
        #[test]
        fn arbitrary_paths_never_panic(path in ".*") {
            let (key, _) = split_path(&path);
            let _ = key_of(key, &HeaderMap::new());
        }
    }
}

//! Finds the key that identifies the trial of a request, in its path or its headers.

use http::{HeaderMap, header};

use crate::common::trial_key::{IdentityError, TrialKey};

/// Splits a request path into its key and the rest: `/t/KEY/v1/models` → (`KEY`, `/v1/models`).
pub(crate) fn split_path(path: &str) -> (Option<&str>, &str) {
    let Some(rest) = path.strip_prefix("/t/") else { return (None, path) };
    match rest.find('/') {
        Some(slash) => (rest.get(..slash), rest.get(slash..).unwrap_or_default()),
        None => (Some(rest), ""),
    }
}

/// Returns the key of a request. The path has precedence. A header counts only if it has the form of a rolltap key.
pub(crate) fn key_of(in_path: Option<&str>, headers: &HeaderMap) -> Result<TrialKey, IdentityError> {
    if let Some(text) = in_path {
        return TrialKey::parse(text).ok_or(IdentityError::Malformed);
    }
    // Clients send dummy credentials beside the key. So texts of another form are ignored.
    let mut keys = credentials(headers).filter_map(TrialKey::parse);
    let key = keys.next().ok_or(IdentityError::Missing)?;
    // Two keys could mean two trials, and a guess would record the call in the wrong one.
    if keys.all(|other| other == key) { Ok(key) } else { Err(IdentityError::Conflicting) }
}

/// Returns the key of a request if any text is a valid key. Keys of rolltap's form have precedence over dummies.
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

    proptest! {
        #[test]
        fn arbitrary_paths_never_panic(path in ".*") {
            let (key, _) = split_path(&path);
            let _ = key_of(key, &HeaderMap::new());
        }
    }
}

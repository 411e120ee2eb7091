//! The address of a vLLM server, as users write it.

use std::fmt;
use std::str::FromStr;

use http::uri::Authority;
use http::{HeaderValue, Uri};

/// The base URL of an upstream, given with or without `/v1`, and the API key that it requires (vLLM's `--api-key`).
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Scheme, authority, and the path before `/v1`, without a final slash.
    base: String,
    authority: Authority,
    is_tls: bool,
    /// The path before `/v1`, without a final slash.
    prefix: String,
    authorization: Option<HeaderValue>,
}

/// A text that is not an upstream address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no upstream address: {reason}; write it like http://127.0.0.1:8000")]
pub struct InvalidAddress {
    text: String,
    reason: String,
}

impl Address {
    /// Adds the API key that the server requires. Fails if a header cannot hold the key.
    pub fn with_api_key(mut self, key: &str) -> Result<Self, InvalidAddress> {
        let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| InvalidAddress {
            text: self.base.clone(),
            reason: "its API key has characters that a header cannot hold".to_owned(),
        })?;
        // Debug output hides sensitive values.
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(self)
    }

    /// Returns the API key that the server requires, or `None` if there is none.
    pub(crate) fn api_key(&self) -> Option<&str> {
        self.authorization.as_ref()?.to_str().ok()?.strip_prefix("Bearer ")
    }

    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Whether the server speaks TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Returns the path before the path of each request, without a final slash.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = |reason: &str| InvalidAddress { text: text.to_owned(), reason: reason.to_owned() };
        let uri: Uri =
            text.trim().parse().map_err(|error: http::uri::InvalidUri| invalid(&error.to_string()))?;
        let scheme = match uri.scheme_str() {
            Some(scheme @ ("http" | "https")) => scheme,
            Some(_) => return Err(invalid("its scheme is neither http nor https")),
            None => return Err(invalid("it has no scheme")),
        };
        let authority = uri.authority().ok_or_else(|| invalid("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(invalid("credentials do not belong into it, the API key is given apart"));
        }
        if uri.query().is_some() {
            return Err(invalid("it has a query"));
        }
        let path = uri.path().trim_end_matches('/');
        if let Some((base, endpoint)) = path.split_once("/v1/").filter(|(_, rest)| is_endpoint(rest)) {
            return Err(invalid(&format!(
                "/v1/{endpoint} is the path of a call, and an upstream is the base of all calls, here \
                 {scheme}://{authority}{base}/v1"
            )));
        }
        // The paths of calls begin with `/v1` themselves.
        let path = path.strip_suffix("/v1").unwrap_or(path);
        Ok(Self {
            base: format!("{scheme}://{authority}{path}"),
            authority: authority.clone(),
            is_tls: scheme == "https",
            prefix: path.to_owned(),
            authorization: None,
        })
    }
}

/// Returns whether the path after `/v1/` is that of a call, or its beginning. A prefix of a gateway may contain `/v1/`.
fn is_endpoint(rest: &str) -> bool {
    let first = rest.split('/').next().unwrap_or(rest);
    ["chat", "completions", "messages", "models", "responses", "embeddings"].contains(&first)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.base)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn with_and_without_v1_are_the_same_server() {
        for text in ["http://h:8000", "http://h:8000/", "http://h:8000/v1", "http://h:8000/v1/"] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.authority().as_str(), address.prefix()), ("h:8000", ""), "{text}");
        }
        let with_tls: Address = "https://h/v1".parse().unwrap();
        assert_eq!((with_tls.to_string().as_str(), with_tls.is_tls()), ("https://h", true));
        for text in ["http://h/v1/chat", "http://h/v1/chat/completions", "http://h/v1/models/"] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("is the path of a call") && error.contains("here http://h/v1"), "{error}");
        }
        let behind_a_path: Address = "http://h/llm/v1".parse().unwrap();
        assert_eq!(behind_a_path.prefix(), "/llm");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, part) in
            [("h:8000", "scheme"), ("ws://h", "neither"), ("http://u:p@h", "credentials"), ("", "empty")]
        {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn an_api_key_is_not_printed() {
        let address = "http://h".parse::<Address>().unwrap().with_api_key("secret").unwrap();
        assert!(!format!("{address:?} {address}").contains("secret"));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".*") {
            let _ = text.parse::<Address>();
        }
    }
}

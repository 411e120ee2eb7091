//! The URL at which agents reach the agent plane.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use http::Uri;

use crate::api::BaseUrls;
use crate::common::trial_key::TrialKey;

/// The part of a base URL before `/t/KEY`, without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl(String);

/// A text that is not a usable public URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no URL for agents: write it like http://gateway.example:7070")]
pub struct InvalidPublicUrl(String);

impl FromStr for PublicUrl {
    type Err = InvalidPublicUrl;

    fn from_str(text: &str) -> Result<Self, InvalidPublicUrl> {
        let uri: Option<Uri> = text.trim().parse().ok();
        // A key is appended to the path, so a query cannot follow it.
        let is_usable = uri.is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some()
                && uri.query().is_none()
        });
        if is_usable {
            Ok(Self(text.trim().trim_end_matches('/').to_owned()))
        } else {
            Err(InvalidPublicUrl(text.to_owned()))
        }
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PublicUrl {
    /// Returns the URL of this address.
    pub(crate) fn of(address: SocketAddr, has_tls: bool) -> Self {
        Self(format!("{}://{address}", if has_tls { "https" } else { "http" }))
    }

    /// Returns the base URLs of the trial with this key, in the form that each family of clients expects.
    pub(crate) fn base_urls(&self, key: &TrialKey) -> BaseUrls {
        let base = format!("{self}/t/{}", key.reveal());
        // The clients of Anthropic and Gemini append the version themselves.
        BaseUrls { openai: format!("{base}/v1"), anthropic: base.clone(), gemini: base }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_for_agents_has_scheme_and_host() {
        assert_eq!("https://h/p/".parse::<PublicUrl>().unwrap().to_string(), "https://h/p");
        for bad in ["", "h:7070", "ftp://h", "http://h?x=1"] {
            assert!(bad.parse::<PublicUrl>().is_err(), "{bad}");
        }
    }
}

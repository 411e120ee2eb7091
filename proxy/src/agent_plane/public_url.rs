//! The URL at which agents reach the agent plane, perhaps below a path prefix of a gateway.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::Uri;
use http::uri::Authority;

use crate::api::BaseUrls;
use crate::common::trial_key::TrialKey;

/// The part of a base URL before `/t/KEY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// Scheme, host and port.
    origin: String,
    /// The path below the origin, such as `/rolltap`. Empty if there is none, and never ends in a slash.
    prefix: String,
}

/// A text that is not a usable public URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "public URL {url:?}: {problem}. Write it like https://gateway.example/rolltap or http://10.0.0.5:7070"
)]
pub struct InvalidPublicUrl {
    /// The text, without a password.
    url: String,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("it is not an absolute URL with http:// or https:// and a host")]
    NotAbsolute,
    #[error("it contains a user or a password, which every agent would get")]
    Credentials,
    #[error("{0:?} is not a host with a port from 1 to 65535")]
    Authority(String),
    #[error("{0} is an address to listen on; agents need the address or the name of a machine")]
    Unspecified(IpAddr),
    #[error("it has a query or a fragment, but rolltap appends /t/KEY/v1 to it")]
    NotAPath,
    #[error("leave out {0}: rolltap appends /t/KEY and the path of the API itself")]
    OwnPath(String),
    #[error(
        "its path {0:?} must consist of letters, digits, '-', '_', '.' and '~' between single slashes, because gateways \
         rewrite other paths"
    )]
    Path(String),
}

/// The first segments of the agent plane's own paths. A prefix that begins like one of them would be ambiguous.
const OWN_SEGMENTS: [&str; 3] = ["t", "v1", "v1beta"];

impl FromStr for PublicUrl {
    type Err = InvalidPublicUrl;

    fn from_str(text: &str) -> Result<Self, InvalidPublicUrl> {
        let text = text.trim();
        parse(text).map_err(|problem| InvalidPublicUrl { url: without_credentials(text), problem })
    }
}

fn parse(text: &str) -> Result<PublicUrl, Problem> {
    let uri: Uri = text.parse().map_err(|_| Problem::NotAbsolute)?;
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(Problem::NotAbsolute);
    };
    // `Uri` discards a fragment.
    if uri.query().is_some() || text.contains(['?', '#']) {
        return Err(Problem::NotAPath);
    }
    check_authority(authority)?;
    let prefix = uri.path().trim_end_matches('/');
    check_prefix(prefix)?;
    Ok(PublicUrl { origin: format!("{scheme}://{authority}"), prefix: prefix.to_owned() })
}

fn check_authority(authority: &Authority) -> Result<(), Problem> {
    if authority.as_str().contains('@') {
        return Err(Problem::Credentials);
    }
    let host = authority.host();
    let port = authority.as_str().strip_prefix(host).unwrap_or_default();
    let has_valid_port = port.is_empty() || authority.port_u16().is_some_and(|port| port > 0);
    if host.is_empty() || !has_valid_port {
        return Err(Problem::Authority(authority.to_string()));
    }
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => Err(Problem::Unspecified(address)),
        _ => Ok(()),
    }
}

fn check_prefix(prefix: &str) -> Result<(), Problem> {
    let segments = || prefix.split('/').skip(1);
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let is_plain = |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(is_unreserved);
    if !segments().all(is_plain) {
        return Err(Problem::Path(prefix.to_owned()));
    }
    let first = segments().next().filter(|segment| OWN_SEGMENTS.contains(segment));
    // The base URLs of OpenAI's clients end in /v1, so users write it here too.
    let last = segments().last().filter(|segment| matches!(*segment, "v1" | "v1beta"));
    match first.or(last) {
        Some(own) => Err(Problem::OwnPath(format!("/{own}"))),
        None => Ok(()),
    }
}

/// Replaces the user and the password of a URL, for an error.
fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://…@{host}{path}"),
        None => url.to_owned(),
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, prefix } = self;
        write!(f, "{origin}{prefix}")
    }
}

impl PublicUrl {
    /// Returns the URL of this address.
    pub(crate) fn of(address: SocketAddr, has_tls: bool) -> Self {
        let scheme = if has_tls { "https" } else { "http" };
        Self { origin: format!("{scheme}://{address}"), prefix: String::new() }
    }

    /// Returns the base URLs of the trial with this key, in the form that each family of clients expects.
    pub(crate) fn base_urls(&self, key: &TrialKey) -> BaseUrls {
        let base = format!("{self}/t/{}", key.reveal());
        // The clients of Anthropic and Gemini append the version themselves.
        BaseUrls { openai: format!("{base}/v1"), anthropic: base.clone(), gemini: base }
    }

    /// Removes the prefix from the path of a request. A path without the prefix is unchanged: a gateway may have removed
    /// it, and agents beside the proxy call it without a gateway.
    pub(crate) fn without_prefix<'a>(&self, path: &'a str) -> &'a str {
        path.strip_prefix(&*self.prefix).filter(|rest| rest.starts_with('/')).unwrap_or(path)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(url: &str) -> String {
        url.parse::<PublicUrl>().unwrap_err().to_string()
    }

    #[test]
    fn a_public_url_is_an_origin_and_perhaps_a_prefix() {
        for (text, expected) in [
            ("https://h/p/", "https://h/p"),
            (" http://10.0.0.5:7070 ", "http://10.0.0.5:7070"),
            ("https://gateway.example/team-1/rolltap.v2", "https://gateway.example/team-1/rolltap.v2"),
            ("http://[fd00::1]:7070/", "http://[fd00::1]:7070"),
            ("https://h/team/t", "https://h/team/t"),
        ] {
            assert_eq!(text.parse::<PublicUrl>().unwrap().to_string(), expected);
        }
    }

    #[test]
    fn an_unusable_url_is_an_error_with_its_problem() {
        for (url, problem) in [
            ("", "not an absolute URL"),
            ("h:7070", "not an absolute URL"),
            ("/rolltap", "not an absolute URL"),
            ("ftp://h", "not an absolute URL"),
            ("http://", "not an absolute URL"),
            ("http://h/a b", "not an absolute URL"),
            ("http://h?x=1", "a query or a fragment"),
            ("http://h/p#x", "a query or a fragment"),
            ("http://h:0", "a port from 1 to 65535"),
            ("http://h:70700", "a port from 1 to 65535"),
            ("http://h:/p", "a port from 1 to 65535"),
            ("http://0.0.0.0:7070", "0.0.0.0 is an address to listen on"),
            ("http://[::]:7070", ":: is an address to listen on"),
            ("https://h/v1", "leave out /v1:"),
            ("https://h/rolltap/v1/", "leave out /v1:"),
            ("https://h/t/x", "leave out /t:"),
            ("https://h/a//b", "between single slashes"),
            ("https://h/a/../b", "between single slashes"),
            ("https://h/a%2Fb", "between single slashes"),
        ] {
            assert!(error(url).contains(problem), "{url}: {}", error(url));
        }
    }

    #[test]
    fn a_password_is_not_repeated() {
        let error = error("https://user:secret@h/p");
        assert!(error.contains("https://…@h/p") && error.contains("a user or a password"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn the_prefix_counts_only_as_whole_segments() {
        let url: PublicUrl = "https://h/rolltap".parse().unwrap();
        for (path, expected) in [
            ("/rolltap/t/KEY/v1/models", "/t/KEY/v1/models"),
            ("/rolltap/v1/models", "/v1/models"),
            ("/t/KEY/v1/models", "/t/KEY/v1/models"),
            ("/rolltapx/v1/models", "/rolltapx/v1/models"),
            ("/rolltap", "/rolltap"),
            ("/rolltap/rolltap/v1/models", "/rolltap/v1/models"),
        ] {
            assert_eq!(url.without_prefix(path), expected);
        }
        assert_eq!(PublicUrl::of(SocketAddr::from(([127, 0, 0, 1], 80)), false).without_prefix("/v1"), "/v1");
    }

    proptest! {
        #[test]
        fn a_usable_url_is_stable_and_its_paths_lead_back(text in "https?://[a-z0-9.:@\\[\\]]{0,12}[ -~]{0,20}") {
            if let Ok(url) = text.parse::<PublicUrl>() {
                let again: PublicUrl = url.to_string().parse().unwrap();
                prop_assert_eq!(&again, &url);
                let path = format!("{}/t/KEY/v1", url.prefix);
                prop_assert_eq!(url.without_prefix(&path), "/t/KEY/v1");
            }
        }
    }
}

//! Agents in web pages: the origins from which browsers may call the agent plane.
//!
//! As with vLLM's `--allowed-origins`, no origin is allowed by default, and an allowed origin may send any header.

use std::time::Duration;

use http::header::ORIGIN;
use http::{HeaderMap, HeaderValue, Method, Uri};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// The time for which a browser may cache the answer to a preflight request. vLLM has the same value.
const ASKED_AGAIN: Duration = Duration::from_secs(600);

/// Origins whose pages may call the agent plane.
#[derive(Clone, Debug, Default)]
pub struct AllowedOrigins(Option<CorsLayer>);

/// A text that is not an origin.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no origin: write it as the browser does (https://app.example, http://localhost:3000), or * for all"
)]
pub struct InvalidOrigin(String);

impl AllowedOrigins {
    /// Allows these origins, or all origins if `*` is in the list.
    ///
    /// # Errors
    /// The first text that is neither an origin nor `*`.
    pub fn new(origins: &[String]) -> Result<Self, InvalidOrigin> {
        if origins.is_empty() {
            return Ok(Self(None));
        }
        let allowed = if origins.iter().any(|origin| origin == "*") {
            AllowOrigin::any()
        } else {
            AllowOrigin::list(origins.iter().map(|text| origin(text)).collect::<Result<Vec<_>, _>>()?)
        };
        // Mirrored, because SDKs send headers of their own that no fixed list would cover.
        let layer = CorsLayer::new()
            .allow_origin(allowed)
            .allow_methods([Method::GET, Method::POST])
            .allow_headers(AllowHeaders::mirror_request())
            .max_age(ASKED_AGAIN);
        Ok(Self(Some(layer)))
    }

    /// Returns the layer that answers a request of a browser. `None` for other requests, and if no origin is allowed.
    pub(crate) fn layer_for(&self, headers: &HeaderMap) -> Option<&CorsLayer> {
        self.0.as_ref().filter(|_| headers.contains_key(ORIGIN))
    }
}

fn origin(text: &str) -> Result<HeaderValue, InvalidOrigin> {
    let invalid = || InvalidOrigin(text.to_owned());
    let uri: Uri = text.parse().map_err(|_| invalid())?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return Err(invalid()) };
    // Browsers send an origin without a path and without credentials, and compare it as text.
    if text != format!("{scheme}://{authority}") || authority.as_str().contains('@') {
        return Err(invalid());
    }
    HeaderValue::from_str(text).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(origins: &[&str]) -> Result<AllowedOrigins, InvalidOrigin> {
        AllowedOrigins::new(&origins.iter().map(|&origin| origin.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn origins_are_as_browsers_write_them() {
        for good in ["*", "https://app.example", "http://localhost:3000", "http://[::1]:80"] {
            assert!(allowed(&[good]).is_ok(), "{good}");
        }
        for bad in
            ["", "app.example", "https://app.example/", "https://a/b", "https://u@a", "https://a?b", "null"]
        {
            let error = allowed(&["https://good.example", bad]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{bad:?} is no origin: ")), "{error}");
        }
    }

    #[test]
    fn only_requests_of_browsers_are_looked_at_and_only_where_an_origin_is_allowed() {
        let browser = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static("https://app.example"))]);
        assert!(allowed(&["*"]).unwrap().layer_for(&browser).is_some());
        assert!(allowed(&["*"]).unwrap().layer_for(&HeaderMap::new()).is_none());
        assert!(allowed(&[]).unwrap().layer_for(&browser).is_none());
    }
}

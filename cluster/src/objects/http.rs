//! The HTTP client of S3, which has TLS with ring and without HTTP/2.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use reqwest::redirect::Policy;
use rustls::{ClientConfig, RootCertStore};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time of a whole GET. Its size is unknown before.
const LONGEST_GET: Duration = Duration::from_secs(600);
/// The bytes per second of the slowest connection for which a large body has enough time.
const SLOWEST: usize = 256 << 10;

/// Makes the clients of one place.
#[derive(Debug)]
pub(super) struct Connector {
    /// Whether the server is on this machine, so that no HTTP proxy is used.
    on_loopback: bool,
    timeout: Duration,
}

#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    timeout: Duration,
}

impl Connector {
    /// Makes clients of a server. `timeout` is the time in which it must begin to answer.
    pub(super) fn new(endpoint: Option<&str>, timeout: Duration) -> Self {
        let url = endpoint.and_then(|endpoint| endpoint.parse().ok());
        Self { on_loopback: url.as_ref().is_some_and(is_loopback), timeout }
    }

    fn client(&self) -> Result<reqwest::Client, Box<dyn std::error::Error + Send + Sync>> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = reqwest::Client::builder()
            .tls_backend_preconfigured(config.with_root_certificates(roots).with_no_client_auth())
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::none())
            .user_agent("rolltap");
        Ok(if self.on_loopback { builder.no_proxy() } else { builder }.build()?)
    }
}

fn is_loopback(url: &reqwest::Url) -> bool {
    // The URL has an IPv6 address in brackets.
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let unusable = |source| object_store::Error::Generic { store: "S3", source };
        Ok(HttpClient::new(Client { http: self.client().map_err(unusable)?, timeout: self.timeout }))
    }
}

type Calling<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Client {
    fn call<'life, 'calling>(&'life self, request: HttpRequest) -> Calling<'calling>
    where
        'life: 'calling,
        Self: 'calling,
    {
        Box::pin(self.send(request))
    }
}

impl Client {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let url = parts.uri.to_string().parse();
        let url = url.map_err(|error| HttpError::new(HttpErrorKind::Unknown, InvalidUri(error)))?;
        let is_get = parts.method == http::Method::GET;
        let seconds = u64::try_from(body.content_length() / SLOWEST).unwrap_or(u64::MAX);
        let begins = self.timeout.saturating_add(Duration::from_secs(seconds));
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        *request.body_mut() = Some(reqwest::Body::wrap(body));
        *request.timeout_mut() = Some(if is_get { LONGEST_GET } else { begins });
        let sent = tokio::time::timeout(begins, self.http.execute(request)).await;
        let answer = sent.map_err(|elapsed| HttpError::new(HttpErrorKind::Timeout, elapsed))?;
        let answer: http::Response<reqwest::Body> = answer.map_err(error)?.into();
        Ok(answer.map(|body| HttpResponseBody::new(body.map_err(error))))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the URL of the request is invalid: {0}")]
struct InvalidUri(<reqwest::Url as std::str::FromStr>::Err);

/// Classifies an error. An error of the connection is repeated, because each write is either conditional or has no other
/// effect the second time.
fn error(error: reqwest::Error) -> HttpError {
    let kind = if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_connect() {
        HttpErrorKind::Connect
    } else if error.is_decode() {
        HttpErrorKind::Interrupted
    } else if error.is_request() || error.is_body() {
        HttpErrorKind::Request
    } else {
        HttpErrorKind::Unknown
    };
    // The URL of a request can have parts of a signature.
    HttpError::new(kind, error.without_url())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_on_this_machine_are_recognized() {
        for here in ["http://127.0.0.1:9000", "https://localhost", "http://[::1]:9000"] {
            assert!(Connector::new(Some(here), CONNECT_TIMEOUT).on_loopback, "{here}");
        }
        for there in [Some("https://s3.example.com"), Some("no URL"), None] {
            assert!(!Connector::new(there, CONNECT_TIMEOUT).on_loopback, "{there:?}");
        }
    }
}

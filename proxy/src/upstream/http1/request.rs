//! A request as the bytes that are sent.

use std::io::Write;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use http_body::Body;

use crate::upstream::send_error::SendFailure;

/// The head of a request that gets further headers.
#[derive(Debug)]
pub(crate) struct RequestHead {
    bytes: Vec<u8>,
    method: Method,
}

/// A request that can be sent, several times if needed.
#[derive(Debug)]
pub(in crate::upstream) struct Request {
    pub(super) head: WholeHead,
    pub(super) body: Bytes,
}

/// The head of a request whose body follows.
#[derive(Debug)]
pub(super) struct WholeHead {
    pub(super) bytes: Vec<u8>,
    /// Whether the body is sent in chunks, because its length is unknown.
    pub(super) is_chunked: bool,
    /// Whether the answer has no body, even if its headers have a length.
    pub(super) is_for_head: bool,
}

/// A request target with a character that would end the request line.
#[derive(Debug, thiserror::Error)]
#[error("the path {0:?} has characters that no request line can hold")]
pub(crate) struct InvalidTarget(String);

impl From<InvalidTarget> for SendFailure {
    fn from(error: InvalidTarget) -> Self {
        Self::Broken(error.to_string())
    }
}

impl RequestHead {
    /// Begins a request to the server `host`, for the target that `prefix` and `path` form together.
    pub(crate) fn new(method: &Method, host: &str, prefix: &str, path: &str) -> Result<Self, InvalidTarget> {
        if !prefix.bytes().chain(path.bytes()).all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidTarget(format!("{prefix}{path}")));
        }
        let mut bytes = Vec::with_capacity(256);
        for part in [method.as_str(), " ", prefix, path, " HTTP/1.1\r\nhost: ", host, "\r\n"] {
            bytes.extend_from_slice(part.as_bytes());
        }
        Ok(Self { bytes, method: method.clone() })
    }

    /// Adds a header. Its value cannot end the line, because [`HeaderValue`] has no line breaks.
    pub(crate) fn add(&mut self, name: &HeaderName, value: &HeaderValue) {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            self.bytes.extend_from_slice(part);
        }
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap()
    }

    /// Completes the request with its body and the length of the body.
    pub(in crate::upstream) fn with_body(self, body: Bytes) -> Request {
        let head = self.before_body(Some(body.len() as u64));
        Request { head, body }
    }

    /// Completes the head of a request whose body follows, with the framing of the body (RFC 9112 §6).
    pub(super) fn before(self, body: &impl Body) -> WholeHead {
        self.before_body(body.size_hint().exact())
    }

    fn before_body(mut self, length: Option<u64>) -> WholeHead {
        match length {
            // A server may wait for the body of a `POST` without a length.
            Some(0) if matches!(self.method, Method::GET | Method::HEAD) => {}
            Some(length) => {
                // Writing to a vector cannot fail.
                let _ = write!(self.bytes, "content-length: {length}\r\n");
            }
            None => self.bytes.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
        self.bytes.extend_from_slice(b"\r\n");
        WholeHead {
            bytes: self.bytes,
            is_chunked: length.is_none(),
            is_for_head: self.method == Method::HEAD,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header;
    use http_body_util::{Empty, Full, StreamBody};

    use super::*;

    fn bytes(request: &Request) -> Vec<u8> {
        [&request.head.bytes[..], &request.body].concat()
    }

    #[test]
    fn a_request_has_its_head_and_its_body() {
        let mut head = RequestHead::new(&Method::POST, "h:1", "/llm", "/v1/chat/completions").unwrap();
        head.add(&header::ACCEPT, &HeaderValue::from_static("a/b"));
        let request = head.with_body(Bytes::from_static(b"{}"));
        let whole =
            b"POST /llm/v1/chat/completions HTTP/1.1\r\nhost: h:1\r\naccept: a/b\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(bytes(&request), whole);
    }

    #[test]
    fn an_empty_post_has_a_length_and_an_empty_get_has_none() {
        let request = |method: Method| {
            let head = RequestHead::new(&method, "h:1", "", "/health").unwrap();
            bytes(&head.with_body(Bytes::new()))
        };
        assert_eq!(request(Method::GET), b"GET /health HTTP/1.1\r\nhost: h:1\r\n\r\n");
        let post = b"POST /health HTTP/1.1\r\nhost: h:1\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(request(Method::POST), post);
    }

    #[test]
    fn a_body_of_unknown_length_is_sent_in_chunks() {
        let head = || RequestHead::new(&Method::PUT, "h:1", "", "/").unwrap();
        let framing = |head: WholeHead| {
            let text = String::from_utf8(head.bytes).unwrap();
            (text.strip_prefix("PUT / HTTP/1.1\r\nhost: h:1\r\n").unwrap().to_owned(), head.is_chunked)
        };
        let whole = framing(head().before(&Full::new(Bytes::from_static(b"abc"))));
        assert_eq!(whole, ("content-length: 3\r\n\r\n".to_owned(), false));
        let empty = framing(head().before(&Empty::<Bytes>::new()));
        assert_eq!(empty, ("content-length: 0\r\n\r\n".to_owned(), false));
        let frames = futures_util::stream::empty::<Result<http_body::Frame<Bytes>, std::io::Error>>();
        let unknown = framing(head().before(&StreamBody::new(frames)));
        assert_eq!(unknown, ("transfer-encoding: chunked\r\n\r\n".to_owned(), true));
    }

    #[test]
    fn a_path_that_would_end_the_request_line_is_an_error() {
        for path in ["/a b", "/a\r\nx: 1", "/\u{e4}"] {
            assert!(RequestHead::new(&Method::GET, "h:1", "", path).is_err(), "{path:?}");
        }
    }
}

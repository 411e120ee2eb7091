//! A request as the bytes that are sent.

use std::io::Write;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderName, HeaderValue, Method};

/// The head of a request that gets further headers.
#[derive(Debug)]
pub(in crate::upstream) struct RequestHead {
    bytes: Vec<u8>,
    /// Whether an empty body has its length too. A server may wait for the body of a `POST` without a length.
    needs_length: bool,
}

/// A request that can be sent, several times if needed.
#[derive(Debug)]
pub(in crate::upstream) struct Request {
    head: Vec<u8>,
    body: Bytes,
}

/// A request target with a character that would end the request line.
#[derive(Debug, thiserror::Error)]
#[error("the path {0:?} has characters that no request line can hold")]
pub(in crate::upstream) struct InvalidTarget(String);

impl RequestHead {
    /// Begins a request to the server `host`, for the target that `prefix` and `path` form together.
    pub(in crate::upstream) fn new(
        method: &Method,
        host: &Authority,
        prefix: &str,
        path: &str,
    ) -> Result<Self, InvalidTarget> {
        if !prefix.bytes().chain(path.bytes()).all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidTarget(format!("{prefix}{path}")));
        }
        let mut bytes = Vec::with_capacity(256);
        for part in [method.as_str(), " ", prefix, path, " HTTP/1.1\r\nhost: ", host.as_str(), "\r\n"] {
            bytes.extend_from_slice(part.as_bytes());
        }
        Ok(Self { bytes, needs_length: *method != Method::GET })
    }

    /// Adds a header. Its value cannot end the line, because [`HeaderValue`] has no line breaks.
    pub(in crate::upstream) fn add(&mut self, name: &HeaderName, value: &HeaderValue) {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Completes the request with its body and the length of the body.
    pub(in crate::upstream) fn with_body(mut self, body: Bytes) -> Request {
        if self.needs_length || !body.is_empty() {
            // Writing to a vector cannot fail.
            let _ = write!(self.bytes, "content-length: {}\r\n", body.len());
        }
        self.bytes.extend_from_slice(b"\r\n");
        Request { head: self.bytes, body }
    }
}

impl Request {
    /// Returns the rest of the head and the rest of the body, after the first `written` bytes of both.
    pub(super) fn after(&self, written: usize) -> [&[u8]; 2] {
        let of_body = written.saturating_sub(self.head.len());
        [self.head.get(written..).unwrap_or_default(), self.body.get(of_body..).unwrap_or_default()]
    }
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    fn host() -> Authority {
        Authority::from_static("h:1")
    }

    fn bytes(request: &Request, written: usize) -> Vec<u8> {
        request.after(written).concat()
    }

    #[test]
    fn a_request_has_its_head_and_its_body() {
        let mut head = RequestHead::new(&Method::POST, &host(), "/llm", "/v1/chat/completions").unwrap();
        head.add(&header::ACCEPT, &HeaderValue::from_static("a/b"));
        let request = head.with_body(Bytes::from_static(b"{}"));
        let whole =
            b"POST /llm/v1/chat/completions HTTP/1.1\r\nhost: h:1\r\naccept: a/b\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(bytes(&request, 0), whole);
        for written in 0..=whole.len() {
            assert_eq!(bytes(&request, written), whole[written..], "{written}");
        }
    }

    #[test]
    fn an_empty_post_has_a_length_and_an_empty_get_has_none() {
        let request = |method: Method| {
            let head = RequestHead::new(&method, &host(), "", "/health").unwrap();
            bytes(&head.with_body(Bytes::new()), 0)
        };
        assert_eq!(request(Method::GET), b"GET /health HTTP/1.1\r\nhost: h:1\r\n\r\n");
        let post = b"POST /health HTTP/1.1\r\nhost: h:1\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(request(Method::POST), post);
    }

    #[test]
    fn a_path_that_would_end_the_request_line_is_an_error() {
        for path in ["/a b", "/a\r\nx: 1", "/\u{e4}"] {
            assert!(RequestHead::new(&Method::GET, &host(), "", path).is_err(), "{path:?}");
        }
    }
}

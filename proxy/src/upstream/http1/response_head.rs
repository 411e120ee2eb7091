//! The head of an answer: its status, its headers, and the framing and the reuse of the connection that follow from them.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header, response};

use super::framing::Framing;
use crate::upstream::connection_options;

/// The maximum number of headers, as in hyper.
const MOST_HEADERS: usize = 100;
/// The maximum length of a head in bytes.
const LONGEST_HEAD: usize = 256 << 10;

/// Bytes that are no head of an HTTP/1.1 answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it did not answer with HTTP/1.1: {0}")]
pub(in crate::upstream) struct InvalidHead(pub(super) &'static str);

/// The head of a final answer.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) parts: response::Parts,
    pub(super) framing: Framing,
    /// Whether the connection can carry another request after this answer.
    pub(super) keeps_alive: bool,
}

impl ResponseHead {
    /// Parses the received bytes. Interim answers (1xx) are skipped. Returns the head and its length in bytes, or `None` if
    /// its end has not arrived. Header values share the memory of `received`.
    pub(super) fn parse(received: &Bytes) -> Result<Option<(Self, usize)>, InvalidHead> {
        let mut at = 0;
        loop {
            let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
            let mut head = httparse::Response::new(&mut headers);
            let rest = received.get(at..).unwrap_or_default();
            match head.parse(rest).map_err(reason)? {
                httparse::Status::Partial if received.len() > LONGEST_HEAD => {
                    return Err(InvalidHead("its head is too long"));
                }
                httparse::Status::Partial => return Ok(None),
                httparse::Status::Complete(length) => at += length,
            }
            let status = head.code.and_then(|code| StatusCode::from_u16(code).ok());
            let status = status.ok_or(InvalidHead("its status is no number from 100 to 999"))?;
            if status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(InvalidHead("it switches to another protocol, which was not asked for"));
            }
            if !status.is_informational() {
                return Self::of(status, &head, received).map(|head| Some((head, at)));
            }
        }
    }

    fn of(
        status: StatusCode,
        head: &httparse::Response<'_, '_>,
        received: &Bytes,
    ) -> Result<Self, InvalidHead> {
        let mut headers = HeaderMap::with_capacity(head.headers.len());
        for header in head.headers.iter() {
            let name = HeaderName::from_bytes(header.name.as_bytes());
            let value = HeaderValue::from_maybe_shared(received.slice_ref(header.value));
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(InvalidHead("a header has characters that none may have"));
            };
            headers.append(name, value);
        }
        let framing = Framing::of(status, &headers)?;
        let keeps_alive = keeps_alive(head.version == Some(1), &headers);
        let (mut parts, ()) = Response::new(()).into_parts();
        (parts.status, parts.headers) = (status, headers);
        Ok(Self { parts, framing, keeps_alive })
    }
}

/// Whether the server keeps the connection open (RFC 9112 §9.3).
fn keeps_alive(is_http_11: bool, headers: &HeaderMap) -> bool {
    let has = |option: &[u8]| connection_options(headers).any(|named| named.eq_ignore_ascii_case(option));
    // A length beside a transfer coding may be an attempt to smuggle an answer (RFC 9112 §6.1).
    let is_ambiguous =
        headers.contains_key(header::TRANSFER_ENCODING) && headers.contains_key(header::CONTENT_LENGTH);
    !is_ambiguous && !has(b"close") && (is_http_11 || has(b"keep-alive"))
}

fn reason(error: httparse::Error) -> InvalidHead {
    InvalidHead(match error {
        httparse::Error::HeaderName => "a header has an invalid name",
        httparse::Error::HeaderValue => "a header has an invalid value",
        httparse::Error::NewLine => "a line has an invalid end",
        httparse::Error::Status => "it has an invalid status",
        httparse::Error::Token => "it has invalid characters",
        httparse::Error::TooManyHeaders => "it has too many headers",
        httparse::Error::Version => "its first line names no HTTP version that is known",
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Option<(ResponseHead, usize)>, InvalidHead> {
        ResponseHead::parse(&Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn interim_answers_are_skipped() {
        let text = "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 201 Created\r\nX-A: 1\r\ncontent-length: 3\r\n\r\nabc";
        let (head, length) = parse(text).unwrap().unwrap();
        assert_eq!((head.parts.status, length), (StatusCode::CREATED, text.len() - 3));
        assert_eq!(head.parts.headers.get("x-a").unwrap(), "1");
        assert!(head.keeps_alive && head.parts.headers.len() == 2);
        for end in 0..length {
            assert!(parse(&text[..end]).unwrap().is_none(), "{end}");
        }
    }

    #[test]
    fn a_connection_closes_if_the_server_says_so() {
        for (head, keeps_alive) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nconnection: x, Close\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", false),
        ] {
            assert_eq!(parse(head).unwrap().unwrap().0.keeps_alive, keeps_alive, "{head}");
        }
    }

    #[test]
    fn bytes_of_another_protocol_are_errors() {
        for text in [
            "SSH-2.0-OpenSSH_9.2\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "HTTP/1.1 200 OK\r\na b: 1\r\n\r\n",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let flood = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: 1\r\n".repeat(MOST_HEADERS + 1));
        assert!(parse(&flood).is_err());
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(LONGEST_HEAD));
        assert!(parse(&endless).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "(HTTP/1.[01] [1-5]0[0-4] |content-length: |: |\r\n|chunked|.){0,12}") {
            let _ = parse(&text);
        }
    }

    #[test]
    fn fuzz_response() {
        rolltap_testing::fuzz!("response", |response| {
            // A head that is complete, or wrong, is so for any bytes behind it.
            let facts = |(head, length): &(ResponseHead, usize)| {
                (head.parts.status, head.parts.headers.clone(), head.keeps_alive, *length)
            };
            let whole = ResponseHead::parse(&Bytes::copy_from_slice(response));
            let mut received = Vec::new();
            let [_, pieces] = rolltap_testing::fuzz::cuts(response);
            for piece in pieces {
                received.extend_from_slice(piece);
                match ResponseHead::parse(&Bytes::copy_from_slice(&received)) {
                    Ok(None) => {}
                    Ok(Some(head)) => {
                        assert_eq!(facts(&head), facts(whole.as_ref().unwrap().as_ref().unwrap()))
                    }
                    Err(error) => assert_eq!(Some(error), whole.as_ref().err().cloned()),
                }
            }
            let Ok(Some((mut head, length))) = whole else { return };
            let mut data = Vec::new();
            if let Ok(used) = head.framing.decode(&response[length..], &mut data) {
                assert!(used <= response.len() - length && data.len() <= used);
            }
        });
    }
}

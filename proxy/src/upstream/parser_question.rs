//! Asks a vLLM whether it parses its answers (`--reasoning-parser`, `--tool-call-parser`), without sampling.
//!
//! With a parser, a request with `include_reasoning: false` gets no token ids, and each part of its stream contains
//! `"reasoning": null`. vLLM 0.32 answers `POST /v1/chat/completions/derender` by the same rule. That path turns given
//! tokens into a chat answer.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::replica::Outgoing;

/// The path of the question.
const PATH: &str = "/v1/chat/completions/derender";

/// An answer of one token, to turn into a chat answer with its ids and without reasoning.
const QUESTION: &str = r#"{"generate_response":{"request_id":"parser","choices":[{"index":0,"token_ids":[0],"finish_reason":"stop"}]},"chat_request":{"messages":[{"role":"user","content":""}],"include_reasoning":false,"return_token_ids":true}}"#;

#[derive(Deserialize)]
struct DerenderAnswer<'a> {
    #[serde(borrow)]
    choices: Vec<DerenderChoice<'a>>,
}

#[derive(Deserialize)]
struct DerenderChoice<'a> {
    /// `null` reads as a value. An absent key is an error, because it proves nothing.
    #[serde(borrow)]
    token_ids: &'a RawValue,
}

/// Returns the headers of the question.
pub(super) fn headers() -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

/// Returns the question with its [`headers`].
pub(super) fn question(headers: &HeaderMap) -> Outgoing<'_> {
    Outgoing {
        method: Method::POST,
        path: PATH,
        headers,
        session: None,
        body: Bytes::from_static(QUESTION.as_bytes()),
    }
}

/// Whether the server's description (`GET /openapi.json`) contains the path.
pub(super) fn is_answered_by(description: &[u8]) -> bool {
    memchr::memmem::find(description, format!("\"{PATH}\"").as_bytes()).is_some()
}

/// Whether the server has a parser. Returns `None` if the answer does not show it.
pub(super) fn has_parser(answer: &[u8]) -> Option<bool> {
    let answer: DerenderAnswer<'_> = serde_json::from_slice(answer).ok()?;
    match answer.choices.first()?.token_ids.get() {
        "null" => Some(true),
        "[0]" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A shortened answer of vLLM 0.32.
    #[test]
    fn withheld_ids_tell_of_a_parser() {
        let answer = |ids: &str| {
            format!(
                r#"{{"id":"parser","choices":[{{"index":0,"message":{{"content":null}}{ids}}}],"usage":{{}}}}"#
            )
        };
        assert_eq!(has_parser(answer(r#","token_ids":null"#).as_bytes()), Some(true));
        assert_eq!(has_parser(answer(r#","token_ids":[0]"#).as_bytes()), Some(false));
        for other in ["", r#","token_ids":[1]"#, r#","token_ids":"x""#] {
            assert_eq!(has_parser(answer(other).as_bytes()), None, "{other}");
        }
        assert!(is_answered_by(br#"{"paths":{"/v1/chat/completions/derender":{"post":{}}}}"#));
        assert!(!is_answered_by(br#"{"paths":{"/v1/chat/completions":{"post":{}}}}"#));
        assert!(serde_json::from_str::<serde_json::Value>(QUESTION).is_ok());
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in r#"(\{"choices":\[|\{"token_ids":|null|\[0\]|\}|\]|.)*"#) {
            has_parser(text.as_bytes());
        }
    }
}

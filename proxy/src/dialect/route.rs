//! The paths of the agent plane. All other paths are rejected.

use http::Method;

/// The operation that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Lists the served models.
    Models,
    /// Samples an answer. The call is recorded.
    Call(CallEndpoint),
    /// Counts the tokens of a prompt. Nothing is sampled or recorded.
    Count(CountEndpoint),
}

/// The dialect of a call, and the parameters in its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallEndpoint {
    Chat,
    Completions,
    Responses,
    Messages,
    GenerateContent { model: String, delivery: Delivery },
}

/// The dialect of a token count, and the parameters in its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CountEndpoint {
    Messages,
    GenerateContent { model: String },
}

/// The form in which Gemini's answer is sent. The path and its query determine it, not the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// `generateContent`
    Whole,
    /// `streamGenerateContent?alt=sse`
    Events,
    /// `streamGenerateContent`: one JSON array, sent element by element.
    Array,
}

/// Why a request matches no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RouteError {
    #[error(
        "there is no {0} here; these are served: /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, \
         /v1/messages/count_tokens, /v1/models and /v1beta/models/MODEL:generateContent, :streamGenerateContent and \
         :countTokens"
    )]
    UnknownPath(String),
    #[error("{method} is not a method of {path}: use {allowed}")]
    WrongMethod { method: Method, path: String, allowed: Method },
}

/// The paths with fixed names, each with its only method.
const FIXED: [(&str, Method, Endpoint); 6] = [
    ("/v1/chat/completions", Method::POST, Endpoint::Call(CallEndpoint::Chat)),
    ("/v1/completions", Method::POST, Endpoint::Call(CallEndpoint::Completions)),
    ("/v1/responses", Method::POST, Endpoint::Call(CallEndpoint::Responses)),
    ("/v1/messages", Method::POST, Endpoint::Call(CallEndpoint::Messages)),
    ("/v1/messages/count_tokens", Method::POST, Endpoint::Count(CountEndpoint::Messages)),
    ("/v1/models", Method::GET, Endpoint::Models),
];

impl Endpoint {
    /// Returns the endpoint of a request. `path` no longer contains the trial key.
    pub(crate) fn of(method: &Method, path: &str, query: Option<&str>) -> Result<Self, RouteError> {
        // vLLM redirects a path that ends in a slash to the path without it.
        let path = path.strip_suffix('/').unwrap_or(path);
        let fixed = FIXED.iter().find(|(name, ..)| *name == path);
        let (allowed, endpoint) = match fixed {
            Some((_, allowed, endpoint)) => (allowed.clone(), endpoint.clone()),
            None => {
                (Method::POST, gemini(path, query).ok_or_else(|| RouteError::UnknownPath(path.to_owned()))?)
            }
        };
        if *method == allowed {
            return Ok(endpoint);
        }
        Err(RouteError::WrongMethod { method: method.clone(), path: path.to_owned(), allowed })
    }
}

/// Parses `/v1beta/models/{model}:{method}`. The model's name may contain slashes and be percent-encoded.
fn gemini(path: &str, query: Option<&str>) -> Option<Endpoint> {
    // Google's clients use `v1beta` by default, and `v1` if they are configured for the stable API.
    let named = path.strip_prefix("/v1beta/models/").or_else(|| path.strip_prefix("/v1/models/"))?;
    // The last colon separates the method, because a model's name may contain colons.
    let (model, method) = named.rsplit_once(':')?;
    let model = percent_decoded(model)?;
    let streams_events = || query.unwrap_or_default().split('&').any(|pair| pair == "alt=sse");
    let delivery = match method {
        "generateContent" => Delivery::Whole,
        "streamGenerateContent" if streams_events() => Delivery::Events,
        "streamGenerateContent" => Delivery::Array,
        "countTokens" => return Some(Endpoint::Count(CountEndpoint::GenerateContent { model })),
        _ => return None,
    };
    Some(Endpoint::Call(CallEndpoint::GenerateContent { model, delivery }))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high << 4 | low).ok()?);
    }
    String::from_utf8(bytes).ok().filter(|model| !model.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(method: Method, path: &str, query: Option<&str>) -> Result<Endpoint, RouteError> {
        Endpoint::of(&method, path, query)
    }

    #[test]
    fn each_path_has_its_method() {
        assert_eq!(
            of(Method::POST, "/v1/messages", Some("beta=true")),
            Ok(Endpoint::Call(CallEndpoint::Messages))
        );
        assert_eq!(of(Method::GET, "/v1/models", None), Ok(Endpoint::Models));
        assert_eq!(
            of(Method::GET, "/v1/messages", None),
            Err(RouteError::WrongMethod {
                method: Method::GET,
                path: "/v1/messages".to_owned(),
                allowed: Method::POST
            })
        );
        assert_eq!(of(Method::POST, "/v1/chat/completions/", None), Ok(Endpoint::Call(CallEndpoint::Chat)));
        for path in ["", "/", "/v1", "/v1/chat/completions//", "/tokenize", "/v1/models/x", "/../v1/models"] {
            assert!(matches!(of(Method::POST, path, None), Err(RouteError::UnknownPath(_))), "{path}");
        }
    }

    #[test]
    fn gemini_names_the_model_in_the_path() {
        let call = |model: &str, delivery| {
            Ok(Endpoint::Call(CallEndpoint::GenerateContent { model: model.to_owned(), delivery }))
        };
        let of = |path, query| of(Method::POST, path, query);
        assert_eq!(of("/v1beta/models/m:generateContent", None), call("m", Delivery::Whole));
        assert_eq!(
            of("/v1beta/models/org%2Fm:streamGenerateContent", Some("alt=sse")),
            call("org/m", Delivery::Events)
        );
        assert_eq!(
            of("/v1beta/models/org/m:tag:streamGenerateContent", Some("a=b")),
            call("org/m:tag", Delivery::Array)
        );
        assert!(matches!(of("/v1/models/m:countTokens", None), Ok(Endpoint::Count(_))));
        for path in [
            "/v1beta/models/:generateContent",
            "/v1beta/models/m:embedContent",
            "/v1beta/models/%zz:countTokens",
        ] {
            assert!(matches!(of(path, None), Err(RouteError::UnknownPath(_))), "{path}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_paths_never_panic(path in "(/v1beta/models/)?.*", query in proptest::option::of(".*")) {
            let _ = of(Method::POST, &path, query.as_deref());
        }
    }
}

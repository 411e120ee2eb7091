//! The paths that agents may call, and nothing else.

use http::{Method, StatusCode};

use crate::dialect::error::{AgentError, Shape};

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// The served models.
    Models,
    /// A call: something is sampled.
    Call(CallEndpoint),
    /// How many tokens a call's prompt would have; nothing is sampled, nothing recorded.
    Count(CountEndpoint),
}

/// Where a call comes in: its dialect, and what of it stands in the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallEndpoint {
    Chat,
    Completions,
    Responses,
    Messages,
    GenerateContent { model: String, delivery: Delivery },
}

/// Where a prompt is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CountEndpoint {
    Messages,
    GenerateContent { model: String },
}

/// How Gemini's answer is delivered: the path and its query say, not the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// `generateContent`
    Whole,
    /// `streamGenerateContent?alt=sse`
    Events,
    /// `streamGenerateContent`: one JSON array, element by element.
    Array,
}

/// The paths whose names are fixed, with their only method.
const FIXED: [(&str, Method, Endpoint); 6] = [
    ("/v1/chat/completions", Method::POST, Endpoint::Call(CallEndpoint::Chat)),
    ("/v1/completions", Method::POST, Endpoint::Call(CallEndpoint::Completions)),
    ("/v1/responses", Method::POST, Endpoint::Call(CallEndpoint::Responses)),
    ("/v1/messages", Method::POST, Endpoint::Call(CallEndpoint::Messages)),
    ("/v1/messages/count_tokens", Method::POST, Endpoint::Count(CountEndpoint::Messages)),
    ("/v1/models", Method::GET, Endpoint::Models),
];

impl Endpoint {
    /// The endpoint of a request whose path has no key in front any more.
    pub(crate) fn of(method: &Method, path: &str, query: Option<&str>) -> Result<Self, AgentError> {
        // vLLM redirects a path with a slash at its end to the one without.
        let path = path.strip_suffix('/').unwrap_or(path);
        let fixed = FIXED.iter().find(|(name, ..)| *name == path);
        let (allowed, endpoint) = match fixed {
            Some((_, allowed, endpoint)) => (allowed.clone(), endpoint.clone()),
            None => (Method::POST, gemini(path, query).ok_or_else(|| unknown(path))?),
        };
        if *method == allowed {
            return Ok(endpoint);
        }
        let message = format!("{method} is not a method of {path}: use {allowed}");
        Err(AgentError::new(StatusCode::METHOD_NOT_ALLOWED, "BadRequestError", message).allowing(allowed))
    }
}

impl Shape {
    /// In which shape a client that calls this path reads errors, also where the path is none of ours.
    pub(crate) fn of_path(path: &str) -> Self {
        if path.starts_with("/v1/messages") {
            Self::Anthropic
        } else if path.starts_with("/v1beta/") || (path.starts_with("/v1/models/") && path.contains(':')) {
            Self::Gemini
        } else if path.starts_with("/v1/responses") {
            Self::Responses
        } else {
            Self::OpenAi
        }
    }
}

/// `/v1beta/models/{model}:{method}`; the model's name may hold slashes and be percent-encoded.
fn gemini(path: &str, query: Option<&str>) -> Option<Endpoint> {
    let named = path.strip_prefix("/v1beta/models/").or_else(|| path.strip_prefix("/v1/models/"))?;
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

fn unknown(path: &str) -> AgentError {
    let message = format!(
        "there is no {path} here; these are served: /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, \
         /v1/messages/count_tokens, /v1/models and /v1beta/models/MODEL:generateContent, :streamGenerateContent and \
         :countTokens"
    );
    AgentError::new(StatusCode::NOT_FOUND, "NotFoundError", message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(method: Method, path: &str, query: Option<&str>) -> Result<Endpoint, StatusCode> {
        Endpoint::of(&method, path, query).map_err(|error| error.status())
    }

    #[test]
    fn each_path_has_its_method() {
        assert_eq!(
            of(Method::POST, "/v1/messages", Some("beta=true")),
            Ok(Endpoint::Call(CallEndpoint::Messages))
        );
        assert_eq!(of(Method::GET, "/v1/models", None), Ok(Endpoint::Models));
        assert_eq!(of(Method::GET, "/v1/messages", None), Err(StatusCode::METHOD_NOT_ALLOWED));
        assert_eq!(of(Method::POST, "/v1/chat/completions/", None), Ok(Endpoint::Call(CallEndpoint::Chat)));
        for path in ["", "/", "/v1", "/v1/chat/completions//", "/tokenize", "/v1/models/x", "/../v1/models"] {
            assert_eq!(of(Method::POST, path, None), Err(StatusCode::NOT_FOUND), "{path}");
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
            assert_eq!(of(path, None), Err(StatusCode::NOT_FOUND), "{path}");
        }
    }

    #[test]
    fn errors_have_the_shape_of_the_paths_clients() {
        assert_eq!(Shape::of_path("/v1/messages/count_tokens"), Shape::Anthropic);
        assert_eq!(Shape::of_path("/v1beta/models/m:x"), Shape::Gemini);
        assert_eq!(Shape::of_path("/v1/models"), Shape::OpenAi);
    }

    proptest! {
        #[test]
        fn arbitrary_paths_never_panic(path in "(/v1beta/models/)?.*", query in proptest::option::of(".*")) {
            let _ = of(Method::POST, &path, query.as_deref());
            Shape::of_path(&path);
        }
    }
}

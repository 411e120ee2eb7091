//! The ids of a span, and their form in the header `traceparent` (W3C Trace Context).

use http::{HeaderMap, HeaderName};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use twox_hash::XxHash3_128;

/// The header by which a caller names its span.
pub const TRACEPARENT: HeaderName = HeaderName::from_static(NAME);

const NAME: &str = "traceparent";

/// A span's ids, and whether the span is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanPlace {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    /// The `sampled` flag.
    pub(super) is_sampled: bool,
}

impl SpanPlace {
    /// Returns the span that a request names. `None` if it names no span, several, or an invalid one: the standard
    /// requires that an invalid header is ignored. The header `tracestate` is not read, because no span needs it.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let (value, None) = (values.next()?, values.next()) else { return None };
        Self::parse(value.to_str().ok()?)
    }

    /// Parses the value of `traceparent`.
    pub(crate) fn parse(traceparent: &str) -> Option<Self> {
        let context = TraceContextPropagator::new().extract(&Header(traceparent));
        let span = context.span();
        let found = span.span_context();
        let place =
            || Self { trace: found.trace_id(), span: found.span_id(), is_sampled: found.is_sampled() };
        found.is_valid().then(place)
    }

    /// Returns the value of `traceparent` that names this span.
    #[must_use]
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }

    /// Returns a span without a parent. Equal names have equal ids, so that the ids of a trial's spans are the same after
    /// a restart.
    pub(super) fn root(name: &[&str], is_sampled: bool) -> Self {
        Self { trace: TraceId::from(hash("trace", name)), span: span_id("root", name), is_sampled }
    }

    /// Returns another span of the same trace. Equal names of one span have equal ids.
    #[must_use]
    pub fn child(&self, name: &[&str]) -> Self {
        Self { span: span_id(&self.span.to_string(), name), ..*self }
    }

    /// Returns the same span, recorded or not.
    pub(super) fn sampled(self, is_sampled: bool) -> Self {
        Self { is_sampled, ..self }
    }

    /// Returns a span with the same id in the trace of `other`.
    pub(super) fn in_trace_of(self, other: Self) -> Self {
        Self { trace: other.trace, ..self }
    }

    pub(super) fn context(&self) -> SpanContext {
        let flags = if self.is_sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        SpanContext::new(self.trace, self.span, flags, true, TraceState::default())
    }
}

/// Returns the id of the span with this name. An id of zero would be invalid.
fn span_id(of: &str, name: &[&str]) -> SpanId {
    let [first, second] = [0, 64].map(|shift| (hash(of, name) >> shift) as u64);
    SpanId::from(if first == 0 { second } else { first })
}

/// Hashes the parts. Each part has its length, so that no two lists of parts give the same text.
fn hash(of: &str, parts: &[&str]) -> u128 {
    let text: String = parts.iter().map(|part| format!("/{}:{part}", part.len())).collect();
    XxHash3_128::oneshot(format!("{of}{text}").as_bytes())
}

/// Gives the library one header.
struct Header<'a>(&'a str);

impl Extractor for Header<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == NAME).then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec![NAME]
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written() {
        let place = SpanPlace::parse(VALID).unwrap();
        assert!(place.is_sampled);
        assert_eq!(place.traceparent(), VALID);
        let unsampled = VALID.replace("-01", "-00");
        assert_eq!(SpanPlace::parse(&unsampled).unwrap().traceparent(), unsampled);
    }

    #[test]
    fn invalid_headers_and_several_headers_are_ignored() {
        for invalid in ["", "00-0-0-01", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"] {
            assert_eq!(SpanPlace::parse(invalid), None, "{invalid}");
        }
        assert_eq!(
            SpanPlace::parse(&VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32))),
            None
        );
        let mut headers = HeaderMap::new();
        assert_eq!(SpanPlace::of_headers(&headers), None);
        headers.append(TRACEPARENT, HeaderValue::from_static(VALID));
        assert!(SpanPlace::of_headers(&headers).is_some());
        headers.append(TRACEPARENT, HeaderValue::from_static(VALID));
        assert_eq!(SpanPlace::of_headers(&headers), None);
    }

    #[test]
    fn names_have_ids_of_their_own() {
        let root = SpanPlace::root(&["trial", "a"], true);
        assert_eq!(root, SpanPlace::root(&["trial", "a"], true));
        let others = [SpanPlace::root(&["triala"], true), SpanPlace::root(&["trial", "b"], true)];
        assert!(others.iter().all(|other| other.trace != root.trace && other.span != root.span));
        let child = root.child(&["queue"]);
        assert_eq!((child.trace, child.span == root.span), (root.trace, false));
        assert!(SpanPlace::parse(&root.traceparent()).is_some());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = SpanPlace::parse(&text);
        }

        #[test]
        fn each_place_is_read_as_it_is_written(name in ".*", is_sampled: bool) {
            let place = SpanPlace::root(&[&name], is_sampled);
            prop_assert_eq!(SpanPlace::parse(&place.traceparent()), Some(place));
        }
    }
}

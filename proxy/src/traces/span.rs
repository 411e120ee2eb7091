//! A span that has ended.

use std::borrow::Cow;
use std::time::SystemTime;

use jiff::Timestamp;
use opentelemetry::{KeyValue, Value};
use opentelemetry_proto::tonic::Attributes;
use opentelemetry_proto::tonic::trace::v1 as proto;

use super::place::SpanPlace;

/// The maximum length of a text in a span, in bytes. Agents choose the names of models.
const LONGEST_TEXT: usize = 256;

/// The span of work that has ended.
#[derive(Clone, Debug)]
pub struct Span {
    place: SpanPlace,
    parent: Option<SpanPlace>,
    link: Option<SpanPlace>,
    name: Cow<'static, str>,
    /// Whether the work is the answer to a request of another process.
    is_server: bool,
    start: Timestamp,
    end: Timestamp,
    attributes: Vec<KeyValue>,
    has_failed: bool,
}

impl Span {
    /// Begins the description of work from `start` to `end`. A clock that was set back meanwhile gives an empty span.
    #[must_use]
    pub fn new(
        place: SpanPlace,
        parent: Option<SpanPlace>,
        name: impl Into<Cow<'static, str>>,
        start: Timestamp,
        end: Timestamp,
    ) -> Self {
        Self {
            place,
            parent,
            link: None,
            name: bounded(name.into()),
            is_server: false,
            start,
            end: end.max(start),
            attributes: Vec::new(),
            has_failed: false,
        }
    }

    /// Adds an attribute with a number or a fact.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push(KeyValue::new(key, value));
        self
    }

    /// Adds an attribute with a text, of which at most 256 bytes are retained.
    #[must_use]
    pub fn with_text(self, key: &'static str, text: &str) -> Self {
        let text = bounded(Cow::Borrowed(text)).into_owned();
        self.with(key, text)
    }

    /// Adds an attribute, unless its value is unknown.
    #[must_use]
    pub fn with_known(self, key: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Marks the work as the answer to a request of another process.
    #[must_use]
    pub(super) fn of_a_server(self) -> Self {
        Self { is_server: true, ..self }
    }

    /// Names a related span, usually of another trace.
    #[must_use]
    pub(super) fn linked_to(self, link: Option<SpanPlace>) -> Self {
        Self { link, ..self }
    }

    /// Marks the work as failed, with a short name of the reason.
    #[must_use]
    pub fn failed(self, error_type: &str) -> Self {
        Self { has_failed: true, ..self.with_text("error.type", error_type) }
    }

    /// Returns the span in the form of OTLP.
    pub(super) fn to_proto(&self) -> proto::Span {
        let kind =
            if self.is_server { proto::span::SpanKind::Server } else { proto::span::SpanKind::Internal };
        let code =
            if self.has_failed { proto::status::StatusCode::Error } else { proto::status::StatusCode::Unset };
        let link = |link: &SpanPlace| proto::span::Link {
            trace_id: link.trace.to_bytes().to_vec(),
            span_id: link.span.to_bytes().to_vec(),
            flags: u32::from(link.is_sampled),
            ..proto::span::Link::default()
        };
        proto::Span {
            trace_id: self.place.trace.to_bytes().to_vec(),
            span_id: self.place.span.to_bytes().to_vec(),
            parent_span_id: self.parent.map(|parent| parent.span.to_bytes().to_vec()).unwrap_or_default(),
            flags: u32::from(self.place.is_sampled),
            name: self.name.clone().into_owned(),
            kind: kind.into(),
            start_time_unix_nano: nanoseconds(self.start),
            end_time_unix_nano: nanoseconds(self.end),
            attributes: Attributes::from(self.attributes.clone()).0,
            links: self.link.iter().map(link).collect(),
            status: Some(proto::Status { code: code.into(), ..proto::Status::default() }),
            ..proto::Span::default()
        }
    }
}

/// Returns the time since 1970 in nanoseconds. 0 before 1970.
fn nanoseconds(at: Timestamp) -> u64 {
    let since = SystemTime::from(at).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Shortens a text to [`LONGEST_TEXT`] bytes, at the border of a character.
fn bounded(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.len() <= LONGEST_TEXT {
        return text;
    }
    let end = (0..=LONGEST_TEXT).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
    Cow::Owned(text.get(..end).unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_a_bounded_beginning(text in ".{0,300}") {
            let short = bounded(Cow::Borrowed(&text));
            prop_assert!(short.len() <= LONGEST_TEXT && text.starts_with(&*short));
            prop_assert!(short.len() + 4 > text.len().min(LONGEST_TEXT));
        }
    }

    #[test]
    fn a_clock_that_is_set_back_gives_an_empty_span() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let span = Span::new(SpanPlace::root(&["a"], true), None, "a", at(2), at(1)).to_proto();
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (2_000_000_000, 2_000_000_000));
    }
}

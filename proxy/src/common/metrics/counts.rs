//! Counters that other modules hold: flaws of records, and dropped spans.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use rolltap_rollout::call::Flaw;

/// Counts complete calls whose record lacks something, by flaw. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlawCounts(Family<Flawed, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Flawed {
    flaw: &'static str,
}

impl FlawCounts {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let flaws = Self::default();
        // A series that begins at 0 lets an alert see its first increase.
        for flaw in Flaw::ALL {
            drop(flaws.counter(flaw));
        }
        registry.register(
            "call_flaws",
            "Complete calls whose record lacks something, so that nothing or not all of them can be trained",
            flaws.0.clone(),
        );
        flaws
    }

    pub(crate) fn count(&self, flaw: Flaw) {
        self.counter(flaw).inc();
    }

    fn counter(&self, flaw: Flaw) -> Counter {
        self.0.get_or_create_owned(&Flawed { flaw: flaw.as_str() })
    }
}

/// Counts spans that do not reach the OTLP collector, by reason. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct DroppedSpans(Family<Dropped, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Dropped {
    reason: &'static str,
}

/// Why a span does not reach the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanDrop {
    /// Spans are made faster than the collector takes them.
    QueueFull,
    /// The collector was unreachable, or refused the span.
    NotTaken,
}

impl DroppedSpans {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let dropped = Self::default();
        for reason in [SpanDrop::QueueFull, SpanDrop::NotTaken] {
            drop(dropped.counter(reason));
        }
        registry.register(
            "spans_dropped",
            "Spans of traces that did not reach the OTLP collector",
            dropped.0.clone(),
        );
        dropped
    }

    pub(crate) fn count(&self, reason: SpanDrop, spans: usize) {
        self.counter(reason).inc_by(spans as u64);
    }

    /// Returns the number of spans that were dropped for this reason.
    #[cfg(test)]
    pub(crate) fn of(&self, reason: SpanDrop) -> u64 {
        self.counter(reason).get()
    }

    fn counter(&self, reason: SpanDrop) -> Counter {
        let reason = match reason {
            SpanDrop::QueueFull => "queue_full",
            SpanDrop::NotTaken => "not_taken",
        };
        self.0.get_or_create_owned(&Dropped { reason })
    }
}

//! Decides which spans are recorded, and hands them to the exporter.

use std::sync::Arc;

use super::export::{self, Exporting};
use super::place::SpanPlace;
use super::queue::SpanQueue;
use super::sampler::TraceSampler;
use super::settings::TraceSettings;
use super::span::Span;
use crate::common::metrics::DroppedSpans;
use crate::common::tls::TlsError;

/// A handle to record spans. Clones share the queue to the collector.
#[derive(Clone, Debug)]
pub struct Tracer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: SpanQueue,
    sampler: TraceSampler,
}

impl Tracer {
    /// Starts the task that sends spans. It must be called in a tokio runtime. The collector need not be reachable.
    ///
    /// # Errors
    /// The collector has `https`, and the certificates of authorities cannot be used.
    pub fn start(settings: TraceSettings) -> Result<(Self, Exporting), TlsError> {
        Self::start_counting(settings, DroppedSpans::default())
    }

    /// Starts the task. `dropped` counts the spans that do not reach the collector.
    pub(crate) fn start_counting(
        settings: TraceSettings,
        dropped: DroppedSpans,
    ) -> Result<(Self, Exporting), TlsError> {
        let sampler = settings.sampler.clone();
        let (queue, items) = SpanQueue::new(dropped.clone());
        let exporting = export::start(settings, dropped, items)?;
        Ok((Self(Arc::new(Shared { queue, sampler })), exporting))
    }

    /// Returns a span without a parent, with the sampler's decision. Equal names have equal ids.
    #[must_use]
    pub fn root(&self, name: &[&str]) -> SpanPlace {
        let place = SpanPlace::root(name, false);
        place.sampled(self.0.sampler.samples(place.trace, None))
    }

    /// Whether spans below this one are recorded.
    pub(super) fn samples(&self, parent: SpanPlace) -> bool {
        self.0.sampler.samples(parent.trace, Some(parent))
    }

    /// Hands over the spans of one trial or call, unless they are not recorded. Never waits: if too many spans wait,
    /// these are dropped and counted.
    pub fn record(&self, place: SpanPlace, spans: impl FnOnce() -> Vec<Span>) {
        if place.is_sampled {
            self.0.queue.add(spans());
        }
    }
}

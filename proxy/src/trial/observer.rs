//! Measures calls: the metrics of every call, and its spans if traces are on.

use std::sync::Arc;

use http::HeaderMap;
use rolltap_rollout::call::Call;

use crate::common::metrics::CallMetrics;
use crate::recorder::Recorder;
use crate::store::Opened;
use crate::traces::Tracer;
use crate::traces::call::{CallTrace, Sending};
use crate::upstream::Pool;

/// Measures all calls.
#[derive(Clone, Debug)]
pub(crate) struct Observers {
    pub(crate) metrics: Arc<CallMetrics>,
    /// The admission of trials needs the length of each conversation.
    pub(crate) upstream: Arc<Pool>,
    /// `None` if traces are off.
    pub(crate) tracer: Option<Tracer>,
}

/// Measures one call.
#[derive(Debug)]
pub(crate) struct CallObserver {
    metrics: Arc<CallMetrics>,
    upstream: Arc<Pool>,
    /// `None` if traces are off.
    trace: Option<CallTrace>,
}

impl Observers {
    /// Begins to measure a call of the trial, with the headers of its request.
    pub(crate) fn of_call(&self, opened: &Opened, headers: &HeaderMap) -> CallObserver {
        let trace = self.tracer.as_ref().map(|tracer| CallTrace::begin(tracer, opened, headers));
        CallObserver { metrics: Arc::clone(&self.metrics), upstream: Arc::clone(&self.upstream), trace }
    }
}

impl CallObserver {
    /// Measures the call, which has ended with these records.
    pub(super) fn ended(&self, records: &[Arc<Call>], sending: Sending) {
        self.metrics.ended(records, sending.at);
        self.upstream.call_ended(records);
        if let Some(trace) = &self.trace {
            trace.ended(records, sending);
        }
    }
}

/// Returns how the call was sent, as far as its recorder knows.
pub(super) fn sending(recorder: &Recorder) -> Sending {
    Sending { at: recorder.sent_at(), is_stream: recorder.is_stream() }
}

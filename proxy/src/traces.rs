//! OpenTelemetry traces: spans of trials and calls, and their export by OTLP over HTTP. Off unless a collector is set.
//!
//! A span is made when its work has ended, from times that the record of the work has. It then waits in a bounded queue
//! for the one task that sends spans to the collector ([`export`]). No step of a call waits for that task: if the queue
//! is full, the span is dropped and counted.
//!
//! Spans hold names, counts and times. They never hold texts of prompts, answers or errors, token ids, or keys.

pub(crate) mod call;
mod export;
mod place;
mod queue;
mod sampler;
mod settings;
mod span;
mod tracer;
mod trial;

pub use export::Exporting;
pub use place::{SpanPlace, TRACEPARENT};
pub use sampler::{InvalidSampler, TraceSampler};
pub use settings::{InvalidTraceSettings, TraceSettings, TraceTexts};
pub use span::Span;
pub use tracer::Tracer;
pub(crate) use trial::TrialSpan;

//! The span of a trial: from its opening to its seal.

use jiff::Timestamp;

use super::place::SpanPlace;
use super::span::Span;
use super::tracer::Tracer;
use crate::store::{Opened, Summary};

/// The span of a trial, and the span of the runner that opened it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrialSpan {
    pub(super) place: SpanPlace,
    parent: Option<SpanPlace>,
}

impl TrialSpan {
    /// Returns the trial's span. Its ids follow from the trial alone, so that they are the same after a restart. It
    /// continues the trace that the runner named when it opened the trial.
    pub(crate) fn of(tracer: &Tracer, opened: &Opened) -> Self {
        let at = opened.at.to_string();
        let name = ["trial", opened.facts.trial_id.as_str(), &at];
        let parent = opened.traceparent.as_deref().and_then(SpanPlace::parse);
        let place = match parent {
            Some(parent) => parent.child(&name).sampled(tracer.samples(parent)),
            None => tracer.root(&name),
        };
        Self { place, parent }
    }

    /// Records the span of a trial that was sealed.
    pub(crate) fn sealed(self, tracer: &Tracer, opened: &Opened, at: Timestamp, summary: &Summary) {
        tracer.record(self.place, || vec![self.span(opened, at, summary)]);
    }

    fn span(self, opened: &Opened, at: Timestamp, summary: &Summary) -> Span {
        let facts = &opened.facts;
        let mut span = Span::new(self.place, self.parent, "capture", opened.at, at)
            .with_text("rolltap.trial.id", facts.trial_id.as_str())
            .with_text("rolltap.task.id", facts.task_id.as_str())
            .with("rolltap.sample_index", i64::from(facts.sample_index))
            .with("rolltap.attempt", i64::from(facts.attempt))
            .with("rolltap.calls", signed(summary.calls))
            .with("rolltap.calls.complete", signed(summary.complete))
            .with("rolltap.tokens.prompt", signed(summary.prompt_tokens))
            .with("rolltap.tokens.completion", signed(summary.completion_tokens));
        for (key, text) in [
            ("rolltap.group.id", facts.group_id.as_ref().map(|group| group.as_str())),
            ("gen_ai.agent.name", facts.agent.as_deref()),
            ("gen_ai.request.model", facts.model.as_deref()),
            ("rolltap.environment", facts.environment.as_deref()),
        ] {
            if let Some(text) = text {
                span = span.with_text(key, text);
            }
        }
        span
    }
}

/// Returns a count as OTLP has it. A larger count saturates.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

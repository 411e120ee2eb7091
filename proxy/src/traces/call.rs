//! The spans of a call: the whole call and its phases, in the terms of the semantic conventions for generative AI.

use std::sync::Arc;

use http::{HeaderMap, Uri};
use jiff::Timestamp;
use opentelemetry::{Array, StringValue, Value};
use rolltap_rollout::call::{Call, CallStatus, Dialect, Flaw};

use super::place::SpanPlace;
use super::span::Span;
use super::tracer::Tracer;
use super::trial::{TrialSpan, signed};
use crate::store::{Opened, completion_tokens};

/// The maximum number of finish reasons in a span. A call may ask for any number of choices.
const MOST_REASONS: usize = 16;

/// The trace of a call in flight.
#[derive(Debug)]
pub(crate) struct CallTrace {
    tracer: Tracer,
    /// The span of the trial.
    trial: SpanPlace,
    /// The agent's own span. `None` if the agent names no span.
    agent: Option<SpanPlace>,
}

/// The facts of a call in flight that its record does not have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sending {
    /// When the request was sent upstream. `None` if it was not sent.
    pub(crate) at: Option<Timestamp>,
    /// Whether the answer is a stream.
    pub(crate) is_stream: bool,
}

impl CallTrace {
    /// Begins the trace of a call. The call continues the trace of the agent's `traceparent`, else that of its trial.
    pub(crate) fn begin(tracer: &Tracer, opened: &Opened, headers: &HeaderMap) -> Self {
        let trial = TrialSpan::of(tracer, opened).place;
        Self { tracer: tracer.clone(), trial, agent: SpanPlace::of_headers(headers) }
    }

    /// Records the spans of a call that has ended with these records, one for each prompt.
    pub(crate) fn ended(&self, records: &[Arc<Call>], sending: Sending) {
        let Some(call) = records.first() else { return };
        let parent = self.agent.unwrap_or(self.trial);
        // The agent names its span freely, so the ids of the call's own span do not depend on it.
        let name = ["call", call.call_id.as_str()];
        let place = self.trial.child(&name).in_trace_of(parent).sampled(self.tracer.samples(parent));
        self.tracer.record(place, || {
            // In the agent's trace, a link leads to the trial.
            let link = self.agent.map(|_| self.trial);
            let whole = Span::new(place, Some(parent), name_of(call), call.started_at, call.ended_at);
            let whole = of_record(whole.of_a_server().linked_to(link), call);
            let whole = of_answer(of_request(whole, call, sending), records, sending);
            let whole = match error_type(call) {
                Some(error) => whole.failed(&error),
                None => whole,
            };
            let phases = phases(call, sending)
                .into_iter()
                .map(|(name, start, end)| Span::new(place.child(&[name]), Some(place), name, start, end));
            std::iter::once(whole).chain(phases).collect()
        });
    }
}

/// Returns the phases of a call, each with its name, start and end. A phase without an end has no entry.
fn phases(call: &Call, sending: Sending) -> Vec<(&'static str, Timestamp, Timestamp)> {
    let Some(sent_at) = sending.at else { return vec![("queue", call.started_at, call.ended_at)] };
    let queue = ("queue", call.started_at, sent_at);
    match call.first_token_at {
        Some(first_at) if sending.is_stream => {
            vec![queue, ("prefill", sent_at, first_at), ("stream", first_at, call.ended_at)]
        }
        // The tokens of an answer in one piece arrive together, so its prefill has no known end.
        _ => vec![queue, ("answer", sent_at, call.ended_at)],
    }
}

/// Returns the name of a call's span: its operation and its model.
fn name_of(call: &Call) -> String {
    let operation = operation(call.dialect);
    if call.model.is_empty() { operation.to_owned() } else { format!("{operation} {}", call.model) }
}

fn of_record(span: Span, call: &Call) -> Span {
    span.with("gen_ai.operation.name", operation(call.dialect))
        .with("gen_ai.provider.name", "vllm")
        .with_text("gen_ai.request.model", &call.model)
        .with_text("rolltap.trial.id", call.trial_id.as_str())
        .with_text("rolltap.call.id", call.call_id.as_str())
        .with("rolltap.call.status", call.status.as_str())
        .with("rolltap.call.role", call.role.as_str())
        .with("rolltap.policy_version", i64::from(call.policy_version))
        .with_known("http.response.status_code", call.http_status.map(i64::from))
}

fn of_request(span: Span, call: &Call, sending: Sending) -> Span {
    let sampling = &call.sampling;
    let integer = |key: &str| sampling.params.get(key).and_then(serde_json::Value::as_i64);
    let number = |key: &str| sampling.params.get(key).and_then(serde_json::Value::as_f64);
    let max_tokens = integer("max_tokens").or_else(|| integer("max_completion_tokens"));
    span.with_known("gen_ai.request.stream", sending.is_stream.then_some(true))
        .with_known("gen_ai.request.temperature", sampling.temperature)
        .with_known("gen_ai.request.top_p", sampling.top_p)
        .with_known("gen_ai.request.top_k", sampling.top_k)
        .with_known("gen_ai.request.max_tokens", max_tokens)
        .with_known("gen_ai.request.frequency_penalty", number("frequency_penalty"))
        .with_known("gen_ai.request.presence_penalty", number("presence_penalty"))
        .with_known("gen_ai.request.seed", integer("seed"))
        .with_known("gen_ai.request.choice.count", integer("n").filter(|&n| n != 1))
}

fn of_answer(span: Span, records: &[Arc<Call>], sending: Sending) -> Span {
    let Some(call) = records.first() else { return span };
    let prompt: u64 = records.iter().map(|call| call.prompt_token_ids.len() as u64).sum();
    let completion: u64 = records.iter().map(|call| completion_tokens(call)).sum();
    // Without ids the number of tokens is unknown, and not 0.
    let known = |tokens: u64| (tokens > 0).then(|| signed(tokens));
    let waited = sending.at.filter(|_| sending.is_stream).zip(call.first_token_at);
    let waited = waited.map(|(sent_at, first_at)| first_at.duration_since(sent_at).as_secs_f64());
    // The name of the model that answered is the one of the request, unless the record has another.
    let model = call.http_status.filter(|status| *status < 400).map(|_| call.served_model());
    let mut span = span
        .with_known("gen_ai.usage.input_tokens", known(prompt))
        .with_known("gen_ai.usage.output_tokens", known(completion))
        .with_known("gen_ai.response.time_to_first_chunk", waited)
        .with_known("gen_ai.response.finish_reasons", finish_reasons(records))
        .with_known("rolltap.call.flaws", names(call.flaws.iter().map(|flaw| Flaw::as_str(*flaw))));
    if let Some(model) = model {
        span = span.with_text("gen_ai.response.model", model);
    }
    if let Some(continuation) = &call.continuation {
        let cause = continuation.cause().map(|cause| cause.as_str());
        span =
            span.with("rolltap.prompt.kind", continuation.kind()).with_known("rolltap.prompt.cause", cause);
    }
    let upstream = call.upstream.as_deref().and_then(|url| url.parse::<Uri>().ok());
    if let Some((upstream, host)) = upstream.as_ref().and_then(|url| Some((url, url.host()?))) {
        let port =
            upstream.port_u16().unwrap_or(if upstream.scheme_str() == Some("https") { 443 } else { 80 });
        span = span.with_text("server.address", host).with("server.port", i64::from(port));
    }
    span
}

/// Returns the finish reasons of the choices. They are words of vLLM.
fn finish_reasons(records: &[Arc<Call>]) -> Option<Value> {
    let choices = records.iter().flat_map(|call| &call.choices).take(MOST_REASONS);
    names(choices.filter_map(|choice| choice.finish_reason.as_deref()))
}

/// Returns a list of names, each shortened. `None` if it is empty.
fn names<'a>(names: impl Iterator<Item = &'a str>) -> Option<Value> {
    let names: Vec<_> =
        names.map(|name| StringValue::from(name.chars().take(32).collect::<String>())).collect();
    (!names.is_empty()).then_some(Value::Array(Array::String(names)))
}

/// Returns why a call failed: the HTTP status of upstream, or a word. `None` for other calls.
fn error_type(call: &Call) -> Option<String> {
    if call.status != CallStatus::Failed {
        return None;
    }
    Some(match call.http_status {
        Some(status @ 400..) => status.to_string(),
        Some(_) => "incomplete_answer".to_owned(),
        None => "no_answer".to_owned(),
    })
}

fn operation(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::ChatCompletions | Dialect::Responses | Dialect::Messages | Dialect::Returned => "chat",
        Dialect::Completions => "text_completion",
        Dialect::GenerateContent => "generate_content",
    }
}

//! The metrics of calls: how many, how they ended, and how long their parts took.

use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use rolltap_rollout::call::{Call, CallStatus};

/// The upper bounds of the times before the upstream gets a call, in seconds.
const SENT: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];
/// The upper bounds of the times of answers, in seconds.
const ANSWERED: [f64; 12] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

/// The metrics of calls that have ended.
#[derive(Debug)]
pub(crate) struct CallMetrics {
    ended: Family<Ended, Counter>,
    prompt_tokens: Counter,
    completion_tokens: Counter,
    before_upstream: Histogram,
    first_token: Histogram,
    duration: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    /// A [`CallStatus`].
    status: &'static str,
}

impl CallMetrics {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let metrics = Self {
            ended: Family::default(),
            prompt_tokens: Counter::default(),
            completion_tokens: Counter::default(),
            before_upstream: Histogram::new(SENT),
            first_token: Histogram::new(ANSWERED),
            duration: Histogram::new(ANSWERED),
        };
        // A series that begins at 0 lets an alert see its first increase.
        for status in CallStatus::ALL {
            drop(metrics.ended.get_or_create(&Ended { status: status.as_str() }));
        }
        registry.register("calls", "Calls that ended, by how they ended", metrics.ended.clone());
        registry.register("prompt_tokens", "Prompt tokens with recorded ids", metrics.prompt_tokens.clone());
        registry.register(
            "completion_tokens",
            "Sampled tokens with recorded ids",
            metrics.completion_tokens.clone(),
        );
        registry.register(
            "call_before_upstream_seconds",
            "Time from the head of a request until it went upstream: reading it, limits, exact prefix, the durable intent, \
             and pauses of the policy",
            metrics.before_upstream.clone(),
        );
        registry.register(
            "call_first_token_seconds",
            "Time from the head of a request until its first token, which for an answer in one piece is its end",
            metrics.first_token.clone(),
        );
        registry.register(
            "call_seconds",
            "Time from the head of a request until the end of its answer",
            metrics.duration.clone(),
        );
        metrics
    }

    /// Counts a call that has ended with these records, one for each prompt. `sent_at` is `None` if it was not sent.
    pub(crate) fn ended(&self, records: &[Arc<Call>], sent_at: Option<Timestamp>) {
        let Some(call) = records.first() else { return };
        self.ended.get_or_create(&Ended { status: call.status.as_str() }).inc();
        let prompt: u64 = records.iter().map(|call| call.prompt_token_ids.len() as u64).sum();
        let choices = records.iter().flat_map(|call| &call.choices);
        let completion: u64 = choices.map(|choice| choice.token_ids.len() as u64).sum();
        self.prompt_tokens.inc_by(prompt);
        self.completion_tokens.inc_by(completion);
        let since_start = |at: Timestamp| at.duration_since(call.started_at).as_secs_f64().max(0.0);
        if let Some(sent_at) = sent_at {
            self.before_upstream.observe(since_start(sent_at));
        }
        if let Some(first_at) = call.first_token_at {
            self.first_token.observe(since_start(first_at));
        }
        self.duration.observe(since_start(call.ended_at));
    }
}

//! The metrics of the proxy, for Prometheus.

mod calls;
mod counts;
mod operation;

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rolltap_rollout::continuation::Continuation;

pub(crate) use calls::CallMetrics;
pub(crate) use counts::{DroppedSpans, FlawCounts, SpanDrop};
use operation::OperationGauges;
pub(crate) use operation::{OperationState, UpstreamCounts};

use super::refusal_counts::RefusalCounts;

/// All metrics, and the registry that encodes them.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    prompts: Family<Prompt, Counter>,
    audits: Family<Audited, Counter>,
    shapes_off: Gauge,
    trials: Family<StateLabels, Gauge>,
    groups: Family<StateLabels, Gauge>,
    readers_cut_off: Counter,
    tls_failures: Family<PlaneLabel, Counter>,
    trial_memory: Gauge,
    trials_asleep: Counter,
    flaws: FlawCounts,
    refusals: RefusalCounts,
    dropped_spans: DroppedSpans,
    calls: Arc<CallMetrics>,
    operation: OperationGauges,
}

/// The numbers of trials and groups in each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) trials_open: usize,
    pub(crate) trials_sealed: usize,
    pub(crate) trials_complete: usize,
    pub(crate) groups_open: usize,
    pub(crate) groups_closed: usize,
}

/// The label for the state of trials or groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    /// For trials `open`, `sealed` (without a reward yet) or `complete`; for groups `open` or `closed`.
    state: &'static str,
}

/// The label for a plane.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PlaneLabel {
    /// `agent` or `admin`.
    plane: &'static str,
}

/// The labels for the outcome of a call's prompt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Prompt {
    /// `fresh`, `spliced` or `rendered`.
    kind: &'static str,
    /// The reason why the prompt was not spliced. Empty for a spliced prompt.
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Audited {
    /// `equal`, `different`, `unanswered` or `failed`.
    outcome: &'static str,
}

/// The outcome of an audit of a spliced prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audit {
    /// The server renders the messages to the same token ids as the proxy.
    Equal,
    /// The server renders the messages to other token ids.
    Different,
    /// The server did not return a rendering.
    Unanswered,
    /// The proxy could not render the messages, so there was nothing to compare.
    Failed,
}

impl Audit {
    const ALL: [Self; 4] = [Self::Equal, Self::Different, Self::Unanswered, Self::Failed];

    /// Whether the server's ids are those of the proxy. `None` if there was nothing to compare.
    pub(crate) fn verdict(self) -> Option<bool> {
        match self {
            Self::Equal => Some(true),
            Self::Different => Some(false),
            Self::Unanswered | Self::Failed => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Different => "different",
            Self::Unanswered => "unanswered",
            Self::Failed => "failed",
        }
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("rolltap");
        let (prompts, shapes_off) = (Family::default(), Gauge::default());
        let audits: Family<Audited, Counter> = Family::default();
        registry.register(
            "prompts",
            "Prompts by what became of them: a new conversation, continued token for token, or left to the server",
            prompts.clone(),
        );
        registry.register(
            "prefix_audits",
            "Spliced prompts that were compared with the server's own rendering",
            audits.clone(),
        );
        registry.register(
            "prefix_shapes_off",
            "Kinds of requests that are not continued token for token because a proof failed",
            shapes_off.clone(),
        );
        let (trials, groups, readers_cut_off) = (Family::default(), Family::default(), Counter::default());
        registry.register(
            "trials",
            "Trials by how they stand: at work, sealed without a reward yet, complete",
            trials.clone(),
        );
        registry.register("groups", "Groups by whether they still take trials", groups.clone());
        registry.register(
            "readers_cut_off",
            "Connections of the admin plane that were closed because their client took nothing of its answer",
            readers_cut_off.clone(),
        );
        let tls_failures = Family::default();
        registry.register(
            "tls_handshakes_failed",
            "Connections of clients whose TLS handshake failed, for example because they do not trust the certificate",
            tls_failures.clone(),
        );
        let (trial_memory, trials_asleep) = (Gauge::default(), Counter::default());
        registry.register(
            "trial_memory_bytes",
            "What open trials take of memory, about (see --memory-mib)",
            trial_memory.clone(),
        );
        registry.register(
            "trials_evicted",
            "Times that an open trial gave its memory back, to be read from the captures when it is called for again",
            trials_asleep.clone(),
        );
        let flaws = FlawCounts::registered(&mut registry);
        let refusals = RefusalCounts::default();
        refusals.register(&mut registry);
        let dropped_spans = DroppedSpans::registered(&mut registry);
        // A series that begins at 0 lets an alert see its first increase.
        for outcome in Audit::ALL {
            drop(audits.get_or_create(&Audited { outcome: outcome.as_str() }));
        }
        let calls = Arc::new(CallMetrics::registered(&mut registry));
        let operation = OperationGauges::registered(&mut registry);
        Self {
            registry,
            prompts,
            audits,
            shapes_off,
            trials,
            groups,
            readers_cut_off,
            tls_failures,
            trial_memory,
            trials_asleep,
            flaws,
            refusals,
            dropped_spans,
            calls,
            operation,
        }
    }

    /// Returns the metrics of calls.
    pub(crate) fn calls(&self) -> Arc<CallMetrics> {
        Arc::clone(&self.calls)
    }

    /// Returns the counters of dropped spans.
    pub(crate) fn dropped_spans(&self) -> DroppedSpans {
        self.dropped_spans.clone()
    }

    /// Sets the gauges of the store and the upstreams.
    pub(crate) fn operation(&self, state: OperationState) {
        self.operation.set(state);
    }

    /// Returns the flaw counters, for the modules that detect flaws.
    pub(crate) fn flaws(&self) -> FlawCounts {
        self.flaws.clone()
    }

    /// Returns the counter of failed TLS handshakes with clients of a plane.
    pub(crate) fn tls_failures(&self, plane: &'static str) -> Counter {
        self.tls_failures.get_or_create_owned(&PlaneLabel { plane })
    }

    /// Returns the counters of refused clients, for the modules that refuse them.
    pub(crate) fn refusals(&self) -> RefusalCounts {
        self.refusals.clone()
    }

    /// Sets the memory of open trials, in bytes.
    pub(crate) fn trial_memory(&self, bytes: u64) {
        // Prometheus gauges are signed, so a larger number saturates.
        self.trial_memory.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts an eviction of an open trial.
    pub(crate) fn trial_evicted(&self) {
        self.trials_asleep.inc();
    }

    /// Sets the current numbers of trials and groups.
    pub(crate) fn stand(&self, counts: Counts) {
        // Gauges are set and not counted, so that they are right after a restart.
        let set = |of: &Family<StateLabels, Gauge>, state, count: usize| {
            of.get_or_create(&StateLabels { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
        };
        set(&self.trials, "open", counts.trials_open);
        set(&self.trials, "sealed", counts.trials_sealed);
        set(&self.trials, "complete", counts.trials_complete);
        set(&self.groups, "open", counts.groups_open);
        set(&self.groups, "closed", counts.groups_closed);
    }

    /// Counts a client of the admin plane that was disconnected because it did not read for too long.
    pub(crate) fn reader_cut_off(&self) {
        self.readers_cut_off.inc();
    }

    /// Counts the prompt of an ended call, by its kind and cause.
    pub(crate) fn prompt(&self, continuation: &Continuation) {
        let kind = continuation.kind();
        // A Prometheus label needs a value, so a missing cause is the empty text.
        let cause = continuation.cause().map(|cause| cause.as_str()).unwrap_or_default();
        self.prompts.get_or_create(&Prompt { kind, cause }).inc();
    }

    pub(crate) fn audited(&self, outcome: Audit) {
        self.audits.get_or_create(&Audited { outcome: outcome.as_str() }).inc();
    }

    /// Counts one more shape of requests whose prompts are not spliced.
    pub(crate) fn shape_off(&self) {
        self.shapes_off.inc();
    }

    /// Removes one shape from that count: its prompts may be spliced again.
    pub(crate) fn shape_on(&self) {
        self.shapes_off.dec();
    }

    /// Encodes all metrics in the text format of OpenMetrics.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use rolltap_rollout::branch_cause::BranchCause;
    use rolltap_rollout::call::Flaw;

    use super::*;

    #[test]
    fn what_is_counted_is_written_out() {
        let metrics = Metrics::new();
        metrics.prompt(&Continuation::Fresh { cause: BranchCause::FirstCall });
        metrics.audited(Audit::Equal);
        metrics.shape_off();
        metrics.reader_cut_off();
        metrics.trial_memory(7);
        metrics.trial_evicted();
        metrics.flaws().count(Flaw::MissingTokenIds);
        metrics.stand(Counts {
            trials_open: 3,
            trials_sealed: 2,
            trials_complete: 1,
            groups_open: 5,
            groups_closed: 4,
        });
        let text = metrics.text().unwrap();
        for line in [
            "rolltap_prompts_total{kind=\"fresh\",cause=\"first_call\"} 1",
            "rolltap_prefix_audits_total{outcome=\"equal\"} 1",
            "rolltap_prefix_shapes_off 1",
            "rolltap_trials{state=\"sealed\"} 2",
            "rolltap_groups{state=\"closed\"} 4",
            "rolltap_readers_cut_off_total 1",
            "rolltap_trial_memory_bytes 7",
            "rolltap_trials_evicted_total 1",
            "rolltap_call_flaws_total{flaw=\"missing_token_ids\"} 1",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} not in {text}");
        }
    }
}

//! Gauges of the store and the upstreams. They are set when they are read, so that no change has to update them.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::StateLabels;

/// The state of the store and the upstreams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperationState {
    /// Whether the store can write, so that calls are admitted.
    pub(crate) can_capture: bool,
    pub(crate) calls_in_flight: usize,
    /// The calls that wait for the end of a pause of the policy.
    pub(crate) calls_held: usize,
    pub(crate) upstreams: UpstreamCounts,
}

/// The numbers of upstreams in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamCounts {
    pub(crate) healthy: usize,
    pub(crate) ejected: usize,
    pub(crate) draining: usize,
}

#[derive(Debug, Default)]
pub(super) struct OperationGauges {
    can_capture: Gauge,
    calls_in_flight: Gauge,
    calls_held: Gauge,
    upstreams: Family<StateLabels, Gauge>,
}

impl OperationGauges {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let gauges = Self::default();
        registry.register(
            "captures_writable",
            "1 if the store can write captures, and 0 while it refuses new calls",
            gauges.can_capture.clone(),
        );
        registry.register(
            "calls_in_flight",
            "Calls that were sent to an upstream and have not ended",
            gauges.calls_in_flight.clone(),
        );
        registry.register(
            "calls_held",
            "Calls that wait for the end of a pause of the policy",
            gauges.calls_held.clone(),
        );
        registry.register("upstreams", "Upstreams by state", gauges.upstreams.clone());
        gauges
    }

    pub(super) fn set(&self, state: OperationState) {
        self.can_capture.set(i64::from(state.can_capture));
        let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.calls_in_flight.set(signed(state.calls_in_flight));
        self.calls_held.set(signed(state.calls_held));
        let UpstreamCounts { healthy, ejected, draining } = state.upstreams;
        for (state, count) in [("healthy", healthy), ("ejected", ejected), ("draining", draining)] {
            self.upstreams.get_or_create(&StateLabels { state }).set(signed(count));
        }
    }
}

//! Limits the memory of open trials: evicts the trials with the longest idle time.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::common::metrics::Metrics;
use crate::store::Store;
use crate::trial::registry::Trials;
use crate::trial::{Idle, Trial};

/// The pause between checks. Memory may exceed the limit in between.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Checks the memory of the trials until `stop`. Evicts trials if together they take more than `most` bytes.
pub(crate) async fn watch(
    trials: Arc<Trials>,
    store: Store,
    most: u64,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
        let open = trials.open();
        let taken = open.iter().map(|trial| trial.bytes()).sum();
        metrics.trial_memory(taken);
        if taken <= most {
            continue;
        }
        // An eighth of the limit is freed in addition, so that the next check does not find it exceeded again.
        for (trial, idle) in longest_idle(open, taken - (most - most / 8)) {
            // A trial that was called meanwhile is not evicted.
            if trial.evict(idle, &store).await {
                metrics.trial_evicted();
            }
        }
    }
}

/// Returns the trials with the longest idle time that together take `needed` bytes.
fn longest_idle(trials: Vec<Arc<Trial>>, mut needed: u64) -> Vec<(Arc<Trial>, Idle)> {
    let idle = trials.into_iter().filter_map(|trial| Some((trial.idle()?, trial)));
    let mut idle: Vec<_> = idle.map(|(idle, trial)| (trial, idle)).collect();
    idle.sort_unstable_by_key(|(_, idle)| *idle);
    let enough = idle.iter().take_while(|(_, idle)| {
        let is_needed = needed > 0;
        needed = needed.saturating_sub(idle.bytes);
        is_needed
    });
    idle.truncate(enough.count());
    idle
}

//! Takes trials from the queue while slots are free.

use std::sync::Arc;
use std::time::Duration;

use rolltap_cluster::work::{Offer, Offers, WorkError};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use super::{Worker, trial};
use crate::environment::EnvironmentKind;
use crate::failure::chain;
use crate::trial::runner::workers::kind_of;

/// The pause before NATS is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// The time between two looks for jobs without trials.
const SWEEP: Duration = Duration::from_secs(60);

/// Takes trials of all kinds until the worker drains.
pub(super) async fn all(worker: &Arc<Worker>, environments: Vec<EnvironmentKind>) {
    let share = environments.len().max(1);
    let mut taking = JoinSet::new();
    for kind in environments {
        taking.spawn(of_kind(Arc::clone(worker), kind, share));
    }
    let sweeping = async {
        loop {
            tokio::time::sleep(SWEEP).await;
            worker.jobs.close_idle().await;
        }
    };
    tokio::select! {
        _ = taking.join_all() => {}
        () = sweeping => {}
    }
}

async fn of_kind(worker: Arc<Worker>, environment: EnvironmentKind, share: usize) {
    let mut offers: Option<Offers> = None;
    let mut is_away = false;
    while let Some(permits) = permits(&worker, share).await {
        match Box::pin(taken(&worker, environment, &mut offers, permits)).await {
            Ok(()) if std::mem::take(&mut is_away) => tracing::info!("the queue answers again"),
            Ok(()) => {}
            Err(error) => {
                if !std::mem::replace(&mut is_away, true) {
                    tracing::warn!(
                        error = chain(&error),
                        "the queue does not answer; running trials continue"
                    );
                }
                // The consumer may be another one when NATS is back.
                offers = None;
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Asks for as many trials as there are permits, and begins each that arrives within some seconds.
async fn taken(
    worker: &Arc<Worker>,
    environment: EnvironmentKind,
    offers: &mut Option<Offers>,
    mut permits: Vec<OwnedSemaphorePermit>,
) -> Result<(), WorkError> {
    if offers.is_none() {
        *offers = worker.queue.offers(&kind_of(environment)?).await?;
    }
    let Some(offers) = offers else {
        // No job has such trials yet.
        worker.draining.run_until_cancelled(tokio::time::sleep(AGAIN)).await;
        return Ok(());
    };
    let mut requested = offers.request(permits.len()).await?;
    while let Some(offer) = requested.next().await? {
        match permits.pop().filter(|_| !worker.draining.is_cancelled()) {
            Some(permit) => begin(worker, permit, offer),
            None => offer.hand_back().await,
        }
    }
    Ok(())
}

/// Waits for free slots. Returns `None` if the worker drains. With several kinds, each gets a share of the free slots, so
/// that no kind waits for the requests of another.
async fn permits(worker: &Worker, share: usize) -> Option<Vec<OwnedSemaphorePermit>> {
    let first = Arc::clone(&worker.slots).acquire_owned();
    let first = worker.draining.run_until_cancelled(first).await?.ok()?;
    let mut permits = vec![first];
    for _ in 1..worker.slots.available_permits().saturating_add(1).div_ceil(share) {
        permits.extend(Arc::clone(&worker.slots).try_acquire_owned().ok());
    }
    Some(permits)
}

/// Begins the trial of an offer.
fn begin(worker: &Arc<Worker>, permit: OwnedSemaphorePermit, offer: Offer) {
    let worker = Arc::clone(worker);
    let trials = worker.trials.clone();
    trials.spawn(async move {
        worker.heartbeat.change(|record| record.running += 1);
        Box::pin(trial::run(&worker, offer)).await;
        worker.heartbeat.change(|record| record.running -= 1);
        drop((worker, permit));
    });
}

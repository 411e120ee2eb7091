//! Builds the rows of a trial.

use std::sync::Arc;

use rolltap_rollout::export::pipeline::prepare::{PrepareOptions, PreparedTrial, prepare};
use rolltap_rollout::rollout::{self, Reward};
use rolltap_rollout::row::RolloutRow;
use tokio::task::JoinError;

use crate::store::Store;
use crate::trial::Trial;

/// Builds the rows of a sealed trial. A long trial takes a while, so this runs outside the threads that serve agents.
/// `with_messages` adds the recorded messages and tools of each call.
///
/// # Errors
/// Returns an error if the runtime shuts down meanwhile, or if building the rows panics.
pub(crate) async fn rows(
    trial: &Arc<Trial>,
    store: &Store,
    reward: Reward,
    superseded: bool,
    with_messages: bool,
) -> Result<Vec<RolloutRow>, JoinError> {
    // Calls are read first: the blocking thread does no asynchronous work.
    let calls = trial.calls(store).await;
    let conversations = if with_messages { Some(trial.conversations(store).await) } else { None };
    let trial = Arc::clone(trial);
    let make = move || {
        let mut rows = rollout::rows(&trial.opened().facts, &reward, calls.iter().map(Arc::as_ref));
        rows.iter_mut().for_each(|row| row.superseded = superseded);
        if let Some(conversations) = conversations {
            conversations.add_to(&mut rows);
        }
        rows
    };
    tokio::task::spawn_blocking(make).await
}

/// The same trial after the rules of an export.
///
/// # Errors
/// If the runtime goes down meanwhile.
pub(crate) async fn prepared(
    trial: &Arc<Trial>,
    store: &Store,
    reward: Reward,
    superseded: bool,
    options: PrepareOptions,
) -> Result<PreparedTrial, JoinError> {
    // No adapter reads texts, and a preparation removes them.
    let rows = rows(trial, store, reward.clone(), superseded, false).await?;
    // Like the making of rows, this looks at every token.
    tokio::task::spawn_blocking(move || prepare(rows, &reward, &options)).await
}

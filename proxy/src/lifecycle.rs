//! The life of a trial: opening, sealing, rewarding, and eviction from memory.
//!
//! Opening, sealing and rewarding are transactions. Each reserves its place in the store, changes the trial, waits
//! until the change is durable, and informs the feed.

pub(crate) mod evict;
pub(crate) mod open;
pub(crate) mod reward;
pub(crate) mod seal;

use tokio::task::JoinError;

/// The task of a transaction ended before the transaction did. The runtime is shutting down, or the task panicked.
#[derive(Debug, thiserror::Error)]
#[error("it was cut off: {0}")]
pub(crate) struct CutOff(JoinError);

/// Runs a transaction in a task of its own, so that it also ends if its caller is dropped.
///
/// A client that disconnects in the middle would otherwise leave a trial that is sealed or rewarded only in part.
pub(crate) async fn to_the_end<T, E>(
    transaction: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<CutOff> + Send + 'static,
{
    tokio::spawn(transaction).await.unwrap_or_else(|error| Err(CutOff(error).into()))
}

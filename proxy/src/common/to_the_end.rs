//! Work that a client cannot interrupt by disconnecting.

use tokio::task::JoinError;

/// Runs work in a task of its own. A client that disconnects drops the handler of its request, but not this work.
///
/// # Errors
/// Those of the work, or the error for a task that panicked.
pub async fn to_the_end<T, E>(work: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<JoinError> + Send + 'static,
{
    tokio::spawn(work).await.unwrap_or_else(|died| Err(E::from(died)))
}

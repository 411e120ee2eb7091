//! The signals that end a job early.

use tokio_util::sync::CancellationToken;

/// The two steps of an early end. Both clean up; they differ in how much is saved first.
#[derive(Clone, Debug, Default)]
pub struct Cancellation {
    /// The first Ctrl-C: start nothing more, stop what runs, and save logs and rollouts.
    pub stop: CancellationToken,
    /// The second Ctrl-C: save only what takes no time.
    pub hurry: CancellationToken,
}

impl Cancellation {
    /// Takes the next step: the first call cancels `stop`, the second one cancels `hurry` too.
    pub fn escalate(&self) {
        // The state before this call decides, so the first call cancels only `stop`.
        if self.stop.is_cancelled() {
            self.hurry.cancel();
        }
        self.stop.cancel();
    }

    /// Returns the output of `work`, or `None` if the job is stopped first.
    pub(crate) async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.stop.run_until_cancelled(work).await
    }

    /// Returns the output of `work`, or `None` if the job is hurried first.
    pub(crate) async fn unless_hurried<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.hurry.run_until_cancelled(work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_request_is_the_hurried_one() {
        let cancellation = Cancellation::default();
        cancellation.escalate();
        assert!(cancellation.stop.is_cancelled() && !cancellation.hurry.is_cancelled());
        cancellation.escalate();
        assert!(cancellation.hurry.is_cancelled());
    }
}

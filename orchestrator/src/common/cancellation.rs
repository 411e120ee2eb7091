//! How a job is told to end early.

use tokio_util::sync::CancellationToken;

/// Two steps of ending early. Both clean up; they differ in how much is saved first.
#[derive(Clone, Debug, Default)]
pub struct Cancellation {
    /// Start nothing more, stop what runs, save logs and rollouts. The first Ctrl-C.
    pub stop: CancellationToken,
    /// Save only what takes no time. The second Ctrl-C.
    pub hurry: CancellationToken,
}

impl Cancellation {
    /// Goes one step further.
    pub fn escalate(&self) {
        if self.stop.is_cancelled() {
            self.hurry.cancel();
        }
        self.stop.cancel();
    }

    /// What the work gives, or none once the job is stopped.
    pub(crate) async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.stop.run_until_cancelled(work).await
    }

    /// What the work gives, or none once there is no more time for it.
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

//! The running trials of a job.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::{Id, JoinError, JoinSet};

use crate::trial::TrialContext;
use crate::trial::{self, TrialOutcome, TrialPlan};

/// The running trials. Each has a task of its own, so that a panic in one does not affect the others.
#[derive(Default)]
pub(super) struct Running {
    tasks: JoinSet<TrialOutcome>,
    plans: HashMap<Id, TrialPlan>,
}

/// A trial whose task has ended. The task may have panicked.
pub(crate) struct EndedTrial {
    pub(super) plan: TrialPlan,
    pub(super) result: Result<TrialOutcome, JoinError>,
}

impl Running {
    pub(super) fn start(&mut self, context: &Arc<TrialContext>, plan: TrialPlan) {
        let (context, trial) = (Arc::clone(context), plan.clone());
        let handle = self.tasks.spawn(async move { trial::run(&context, trial).await });
        self.plans.insert(handle.id(), plan);
    }

    /// Waits for the next trial to end. Returns `None` if no trial runs. The caller may drop the future.
    pub(super) async fn next(&mut self) -> Option<EndedTrial> {
        let (id, result) = match self.tasks.join_next_with_id().await? {
            Ok((id, outcome)) => (id, Ok(outcome)),
            Err(error) => (error.id(), Err(error)),
        };
        self.plans.remove(&id).map(|plan| EndedTrial { plan, result })
    }

    pub(super) fn count(&self) -> usize {
        self.tasks.len()
    }
}

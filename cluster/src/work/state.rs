//! The state of a trial that was offered to workers.

use serde::{Deserialize, Serialize};

use super::worker::WorkerId;
use crate::objects::Content;

/// The state of a trial. A trial without a state is in the queue, or was never offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum TrialState {
    /// A worker runs the trial.
    Running {
        /// The worker.
        worker: WorkerId,
        /// Its name for people.
        name: String,
    },
    /// The coordinator has asked the worker to stop the trial.
    Stopping {
        /// The worker.
        worker: WorkerId,
        /// Its name for people.
        name: String,
    },
    /// The worker has ended the trial, and the folder of the trial is in object storage.
    Ended {
        /// The name of the worker.
        name: String,
        /// The folder.
        folder: Content,
    },
    /// The worker cannot run the trial, and has not begun it.
    Refused {
        /// The name of the worker.
        name: String,
        /// The reason, for people.
        reason: String,
    },
    /// The worker fell silent or gave the trial up. Whatever it still does has no effect.
    Lost {
        /// The name of the worker.
        name: String,
        /// What happened, for people.
        reason: String,
    },
    /// The coordinator has withdrawn the trial before a worker claimed it.
    Withdrawn,
}

impl TrialState {
    /// The worker that has the trial. `None` if none has it.
    pub(super) fn holder(&self) -> Option<(WorkerId, &str)> {
        match self {
            Self::Running { worker, name } | Self::Stopping { worker, name } => Some((*worker, name)),
            Self::Ended { .. } | Self::Refused { .. } | Self::Lost { .. } | Self::Withdrawn => None,
        }
    }

    /// Whether the state never changes again.
    pub fn is_final(&self) -> bool {
        self.holder().is_none()
    }
}

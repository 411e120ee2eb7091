//! The input and the output of every format: trials one after the other into one file. At the end the format reports
//! what it could not represent.

use std::io;

use crate::row::RolloutRow;

/// A selected, weighed and checked trial. A format has nothing left to decide.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The exported branches in order of their index, at least one. `trainable_mask` and `loss_mask` are those of this
    /// export: tokens that it does not train are 0 in both. If the owner of a token is not exported, the first branch
    /// here that has the token owns it.
    pub rows: Vec<RolloutRow>,
    /// The reward to train on: that of the rows, or 0 for a failed trial that counts as 0. `None` if there is none, and
    /// then nothing of the trial is trained.
    pub reward: Option<f64>,
    /// The number that a format writes in place of a missing reward, if its trainer compares rewards and requires one
    /// of every trial. `None` if the trial has a reward or the trainer compares none.
    pub stand_in: Option<f64>,
    /// The trial's advantage within its group, the same for each of its branches. `None` if the export has no
    /// advantages.
    pub advantage: Option<f64>,
    /// The place in the trial's group, if it has a group.
    pub group: Option<GroupPlace>,
    /// The number of branches of the trial that are not in `rows`.
    pub left_out: usize,
}

/// A trial's place among the trials that are compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupPlace {
    /// The index of the group in this export, from 0, in the order of the groups' first trials.
    pub ordinal: usize,
    /// The number of trials of the group that the format gets, including those that only fill it.
    pub trials: usize,
}

/// A property that the format cannot represent, and the number of rows or trials that had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Omission {
    /// Text that continues a number: `rows: their policy versions` becomes `12 rows: their policy versions`.
    pub what: String,
    /// The number of rows or trials.
    pub count: u64,
}

/// Why an export ends early. The caller removes its output.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The format cannot represent this trial. Omitting the trial without the user's request would be wrong.
    #[error("trial {trial_id}, branch {branch_index}: {problem}")]
    Refused {
        /// The trial.
        trial_id: String,
        /// The branch.
        branch_index: i32,
        /// The defect, its position, and the remedy.
        problem: String,
    },
    /// The row cannot be represented in JSON or in Parquet.
    #[error("trial {trial_id}: {source}")]
    Form {
        /// The trial.
        trial_id: String,
        /// The writer's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Writing to the output failed.
    #[error("cannot write the export: {0}")]
    Io(#[from] io::Error),
}

/// The writer of one format into one file.
pub trait Exporter {
    /// Appends a trial. A format that writes whole groups buffers a trial until the last one of its group.
    ///
    /// # Errors
    /// The format cannot represent the trial, or the output failed. The export cannot continue then.
    fn write(&mut self, trial: Trial) -> Result<(), ExportError>;

    /// Completes the file. Returns what the format could not represent.
    ///
    /// # Errors
    /// The output failed.
    fn finish(self: Box<Self>) -> Result<Vec<Omission>, ExportError>;
}

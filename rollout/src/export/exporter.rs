//! What every export writes, and what every format gives: trials one after the other into one file, and at the end an
//! honest account of what the format could not hold.

use std::io;

use crate::row::RolloutRow;

/// A trial as it is exported: chosen, weighed, and checked. Nothing in it is for a format to decide.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Its branches that are exported, in order of their index; at least one. `trainable_mask` and `loss_mask` are those
    /// of this export: what it does not train is 0 in both, and a token whose owner is not exported is given to the
    /// first branch here that has it.
    pub rows: Vec<RolloutRow>,
    /// What is trained on: the rows' reward, or what stands in its place where the trial failed. None where there is
    /// none, and then nothing of the trial is trained.
    pub reward: Option<f64>,
    /// The trial's advantage within its group, the same for each of its branches; none where none was asked for.
    pub advantage: Option<f64>,
    /// The group, where it has one.
    pub group: Option<GroupPlace>,
    /// Branches that the trial has beyond those in `rows`.
    pub left_out: usize,
}

/// A trial's place among those that are compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupPlace {
    /// Counts groups of this export from 0, in the order in which their first trials come.
    pub ordinal: usize,
    /// How many trials of it are exported in all.
    pub trials: usize,
}

/// What a format has no place for, and in how many rows (or trials) it was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Omission {
    /// In words that go on from a number: `rows: their policy versions` is told as `12 rows: their policy versions`.
    pub what: String,
    /// How many.
    pub count: u64,
}

/// Why an export ends early. Nothing of it is left behind.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The format cannot take this trial, and leaving it out would be wrong without being asked.
    #[error("trial {trial_id}, branch {branch_index}: {problem}")]
    Refused {
        /// The trial.
        trial_id: String,
        /// The branch.
        branch_index: i32,
        /// What is wrong, where, and what to do.
        problem: String,
    },
    /// The row has no form in JSON or in Parquet.
    #[error("trial {trial_id}: {source}")]
    Form {
        /// The trial.
        trial_id: String,
        /// What the writer said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The output did not take the bytes.
    #[error("cannot write the export: {0}")]
    Io(#[from] io::Error),
}

/// A format on its way into a file.
pub trait Exporter {
    /// Appends a trial. A format that writes whole groups holds it back until its group's last one.
    ///
    /// # Errors
    /// The format cannot hold it, or the output failed; the export is over then.
    fn write(&mut self, trial: Trial) -> Result<(), ExportError>;

    /// Ends the file; says what could not be held.
    ///
    /// # Errors
    /// The output failed.
    fn finish(self: Box<Self>) -> Result<Vec<Omission>, ExportError>;
}

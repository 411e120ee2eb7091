//! Verifies the trials of a job again, without their agents: the tests as they are now, on the artifacts or containers
//! that remain.
//!
//! The new rewards are a version beside the old ones. Nothing of the job and of its trials changes. As in Harbor, a
//! trial can be verified again if its tests run in a separate environment and the artifacts that they need were
//! collected. Beyond Harbor, a container that remains (`delete: false`) serves tests that need the agent's environment.

mod choice;
mod error;
mod grade;
mod place;
mod prepared;
mod recorded;
mod records;
mod report;
mod rows;
mod run;
mod settings;
mod settle;
mod summary;
mod tasks;

pub use error::RegradeError;
pub use report::{Outcome, RegradeReport, RegradedTrial, Standing};
pub use run::regrade;
pub use settings::{AdminAccess, RegradeSettings};
pub use summary::RegradeSummary;

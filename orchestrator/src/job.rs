//! A job: many trials from one configuration, a limited number at a time. Their rollouts are collected at the end.

mod attempts;
mod check;
mod checksum;
pub mod config;
mod error;
mod events;
mod place;
mod plan;
mod preflight;
mod prepare;
mod progress;
mod proxy;
mod queue;
pub(crate) mod records;
pub mod regrade;
mod report;
mod resume;
mod rollouts;
mod run;
mod running;
mod settings;
mod stretch;
pub mod summary;
pub mod tasks;
mod unfinished;

pub use error::JobError;
pub use preflight::PreflightError;
pub use progress::{Progress, above_progress};
pub use report::JobReport;
pub use resume::ResumeError;
pub use rollouts::RolloutFiles;
pub use run::run_job;
pub use settings::{JobSettings, ProxyChoice, PublicPlace, Upstreams};

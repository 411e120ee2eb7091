//! Harbor tasks run as trials: environments, agents, the life of a trial and of a job, and the join of captured tokens
//! with the verifier's reward.
//!
//! [`job::run_job`] does all of it. The proxy that captures is only reached through its admin plane, by
//! [`admin_client`]: nothing here uses what another runner could not.

pub mod admin_client;
pub mod agents;
pub mod alone;
mod cache;
pub mod cancellation;
pub mod check;
pub mod demo;
pub mod environment;
pub mod export;
pub mod gym;
pub mod harbor;
pub mod job;
pub mod job_dir;
pub mod nearest;
mod plain;
mod records;
pub mod returned;
mod secret_env;
mod shell;
pub mod source;
pub mod summary;
pub mod task;
pub mod trial;
pub mod verifier;

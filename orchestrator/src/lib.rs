//! Harbor tasks run as trials: environments, agents, the life of a trial and of a job, and the join of captured tokens
//! with the verifier's reward.
//!
//! [`job::run_job`] does all of it. The proxy that captures is only reached through its admin plane, by
//! [`admin_client`]: nothing here uses what another runner could not.

pub mod admin_client;
pub mod agent_reported;
pub mod agents;
pub mod check;
pub mod common;
pub mod demo;
pub mod env_server;
pub mod environment;
pub mod export;
pub mod failure;
pub mod job;
pub mod job_dir;
pub mod source;
pub mod standalone;
pub mod summary;
pub mod task;
pub mod trial;
pub mod verify;

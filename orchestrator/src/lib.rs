//! Runs Harbor tasks as trials: environments, agents, the life of a trial and of a job. Joins the captured tokens with
//! the verifier's reward.
//!
//! [`job::run_job`] runs a whole job. This crate reaches the capturing proxy only through its admin plane, with
//! [`admin_client`]: it uses nothing that another runner could not use.

pub mod admin_client;
pub mod agent_reported;
pub mod agents;
pub mod check;
pub mod common;
pub mod demo;
pub mod doctor;
pub mod env_server;
pub mod environment;
pub mod export;
pub mod failure;
pub mod job;
pub mod job_dir;
pub mod source;
pub mod standalone;
pub mod task;
pub mod trial;
pub mod verify;

//! The domain of rolltap, pure and synchronous: captured calls, and the rollouts that a trainer gets.
//!
//! [`call`]s form a [`forest`], and its leaves are branches. The branches of a sealed trial and its reward are a
//! [`rollout`]: one [`row::RolloutRow`] per branch (`rollout/1`). [`check`] verifies every invariant of these rows, and
//! [`export`] writes them in the trainers' file formats. A [`conversation`] has the words of a call. [`agent_reported`] reads the token records of agents that
//! record tokens themselves. [`served_models`] reads the list of models of a server. Nothing here does I/O except through the readers and writers that the caller passes in.

pub mod agent_reported;
pub mod branch_cause;
pub mod call;
pub mod check;
pub mod continuation;
pub mod conversation;
pub mod export;
pub mod forest;
pub mod ids;
pub mod origin;
pub mod roles;
pub mod rollout;
pub mod row;
pub mod served_models;
pub mod token;
pub mod token_list;
pub mod training;

/// Runs the examples of the crate's page as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! The domain of rolltap, pure and synchronous: what was captured of a trial and what a trainer gets of it.
//!
//! [`call`]s form a [`forest`], its leaves are branches, and a sealed trial's branches with its reward are a
//! [`rollout`]: one [`row::RolloutRow`] per branch (`rollout/1`). [`check`] holds every invariant of such rows,
//! [`export`] their file formats. [`returned`] reads what agents that keep tokens themselves hand back. Nothing here does I/O beyond the writers and readers that it is handed.

pub mod agent_reported;
pub mod branch_cause;
pub mod call;
pub mod check;
pub mod continuation;
pub mod export;
pub mod forest;
pub mod ids;
pub mod origin;
pub mod roles;
pub mod rollout;
pub mod row;
pub mod token;
pub mod token_list;
pub mod training;

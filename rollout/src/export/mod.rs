//! The file formats that rollouts leave in, one file each. All are made from [`crate::row::RolloutRow`].
//!
//! An export takes two passes: [`survey`] looks at all trials, [`plan`] decides what becomes of each by the user's
//! [`rules`], [`choice`] checks, chooses and masks the rows of one after the other, and a [`format`](mod@format) writes them.

pub mod advantage;
#[cfg(test)]
mod any_trial;
#[cfg(test)]
mod arbitrary;
pub mod areal;
pub mod atif;
pub mod atropos;
pub mod choice;
pub mod compared;
#[cfg(test)]
mod every_format;
mod exact;
pub mod exporter;
#[cfg(test)]
mod fixture;
pub mod format;
pub mod harbor;
mod json;
pub mod jsonl;
mod lines;
mod mask;
pub mod named;
mod naming;
pub mod nemo_rl;
pub mod openrlhf;
pub mod parquet;
pub mod part;
pub mod plan;
mod policy_number;
mod positions;
pub mod prime_rl;
#[cfg(test)]
mod read_back;
mod refusal;
pub mod rllm;
mod row_facts;
pub mod rules;
mod runs;
pub mod sampled;
mod sequence;
pub mod skyrl;
pub mod slime;
pub mod survey;
mod temperature;
pub mod tinker;
pub mod trl;
mod turn;
pub mod verifiers;
pub mod verl;
pub mod whole_rows;

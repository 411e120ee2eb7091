//! The file formats that rollouts leave in, one file each. All are made from [`crate::row::RolloutRow`].

#[cfg(test)]
mod any_trial;
#[cfg(test)]
mod arbitrary;
pub mod areal;
pub mod atif;
pub mod atropos;
pub mod compared;
#[cfg(test)]
mod every_format;
mod exact;
pub mod exporter;
#[cfg(test)]
mod fixture;
pub mod harbor;
pub mod jsonl;
mod lines;
mod naming;
pub mod nemo_rl;
pub mod openrlhf;
pub mod parquet;
mod policy_number;
mod positions;
pub mod prime_rl;
#[cfg(test)]
mod read_back;
mod refusal;
pub mod rllm;
mod row_facts;
mod runs;
mod sequence;
pub mod skyrl;
pub mod slime;
mod temperature;
pub mod tinker;
pub mod trl;
mod turn;
pub mod verifiers;
pub mod verl;

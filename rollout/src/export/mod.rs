//! The file formats that rollouts leave in, one file each. All are made from [`crate::row::RolloutRow`].

#[cfg(test)]
mod arbitrary;
pub mod atif;
pub mod atropos;
mod exact;
pub mod exporter;
#[cfg(test)]
mod fixture;
pub mod harbor;
pub mod jsonl;
mod lines;
pub mod parquet;
pub mod prime_rl;
mod refusal;
mod row_facts;
mod temperature;
pub mod tinker;
mod turn;
pub mod verifiers;

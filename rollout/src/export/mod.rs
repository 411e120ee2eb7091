//! The file formats that rollouts leave in, one file each. All are made from [`crate::row::RolloutRow`].

pub mod exporter;
#[cfg(test)]
mod fixture;
pub mod jsonl;
pub mod parquet;

//! The file formats that rollouts leave in, one file each. All are made from [`crate::row::RolloutRow`].

pub mod jsonl;
pub mod parquet;

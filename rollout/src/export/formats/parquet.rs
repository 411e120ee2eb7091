//! `rollout/1` as Parquet: one row per branch, columns as in [`RolloutRow`](crate::row::RolloutRow).
//!
//! `column` and `scalar` say how a Rust type is held in Arrow, `record` lists the columns. Compressed with zstd and without
//! dictionaries: token lists repeat as long runs, not as few values, and a dictionary more than doubles them.
//! Times are nanoseconds of UTC, which Parquet holds from 1677 to 2262.

mod column;
mod read;
mod record;
mod scalar;
mod write;

pub(crate) use column::Column;
pub use read::{ParquetReader, ReadError};
pub use write::{ParquetWriter, WriteError};

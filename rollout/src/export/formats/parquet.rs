//! `rollout/1` as Parquet: one row per branch, with the columns of [`RolloutRow`](crate::row::RolloutRow).
//!
//! `column` and `scalar` map Rust types to Arrow, and `record` lists the columns. Files are compressed with zstd and
//! have no dictionaries. Token lists have long repeated runs rather than few distinct values, so a dictionary more than
//! doubles their size. Times are nanoseconds in UTC, which Parquet can represent from 1677 to 2262.

mod column;
mod read;
mod record;
mod scalar;
mod write;

pub(crate) use column::Column;
pub use read::{ParquetReader, ReadError};
pub use write::{ParquetWriter, WriteError};

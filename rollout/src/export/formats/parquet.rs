//! `rollout/1` as Parquet: one row per branch, with the columns of [`RolloutRow`](crate::row::RolloutRow).
//!
//! `column` and `scalar` map Rust types to Parquet, `schema` has the types of Parquet, and `record` lists the columns. For
//! writing, `shredded` has one row by column, and `row_group` the encoded rows. For reading, `node` finds the columns in
//! the schema of a file, and `leaf` decodes them.
//!
//! All of this uses the column API of the crate `parquet`. Its interface through Arrow would add about 3 MB to the
//! program, and rows would be copied into arrays and out of them.
//!
//! Files are compressed with zstd and have no dictionaries. Token lists have long repeated runs rather than few distinct
//! values, so a dictionary more than doubles their size. Times are nanoseconds in UTC, which Parquet can represent from
//! 1677 to 2262.

mod column;
mod leaf;
mod mismatch;
mod node;
mod read;
mod record;
mod row_group;
mod scalar;
mod schema;
mod shredded;
mod write;

pub(crate) use column::Column;
pub use read::{ParquetReader, ReadError};
pub use write::{ParquetWriter, WriteError};

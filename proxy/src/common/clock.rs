//! The clock for the times of records.

use jiff::{Timestamp, Unit};

/// Returns the current time, rounded to microseconds: readers of Parquet (pyarrow's `to_pylist`) reject finer times.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    now.round(Unit::Microsecond).unwrap_or(now)
}

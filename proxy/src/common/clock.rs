//! The clock for the times of records.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Returns the current time in whole microseconds: readers of Parquet (pyarrow's `to_pylist`) reject finer times.
pub(crate) fn now() -> Timestamp {
    // A clock before 1970 is wrong by decades, and its times mean nothing.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let microseconds = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(microseconds).unwrap_or(Timestamp::MAX)
}

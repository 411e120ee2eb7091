//! The time, as records have it.

use jiff::{Timestamp, Unit};

/// Now, to the microsecond: readers of Parquet (pyarrow's `to_pylist`) refuse what is finer.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    now.round(Unit::Microsecond).unwrap_or(now)
}

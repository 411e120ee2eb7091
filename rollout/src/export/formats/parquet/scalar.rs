//! Numbers, texts and times: the leaves of a row, which are its only nullable values.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::types::{
    Float32Type, Float64Type, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, StringArray};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use jiff::Timestamp;

use super::column::{Mismatch, downcast};

/// A value that is not a list, map or struct, and so may be null.
pub(super) trait Scalar: Sized {
    /// The Arrow type, as in [`Column`](super::column::Column).
    fn data_type() -> DataType;

    /// Returns the values as one array, with null for `None`.
    fn to_array<'a>(values: impl Iterator<Item = Option<&'a Self>>) -> Result<ArrayRef, ArrowError>
    where
        Self: 'a;

    /// Returns the values as one array without nulls.
    fn all_to_array<'a>(values: impl Iterator<Item = &'a Self>) -> Result<ArrayRef, ArrowError>
    where
        Self: 'a,
    {
        Self::to_array(values.map(Some))
    }

    /// Returns the value at `index`, which must not be null.
    fn from_array(array: &dyn Array, index: usize) -> Result<Self, Mismatch>;

    /// Returns all values at once, if the type has a fast path and no value is null. Lists of tokens are long.
    fn all_from_array(_: &dyn Array) -> Option<Vec<Self>> {
        None
    }
}

macro_rules! primitive {
    ($rust:ty, $arrow:ty) => {
        impl Scalar for $rust {
            fn data_type() -> DataType {
                <$arrow>::DATA_TYPE
            }

            fn to_array<'a>(values: impl Iterator<Item = Option<&'a Self>>) -> Result<ArrayRef, ArrowError> {
                Ok(Arc::new(values.map(Option::<&Self>::copied).collect::<PrimitiveArray<$arrow>>()))
            }

            fn all_to_array<'a>(values: impl Iterator<Item = &'a Self>) -> Result<ArrayRef, ArrowError> {
                Ok(Arc::new(PrimitiveArray::<$arrow>::from_iter_values(values.copied())))
            }

            fn from_array(array: &dyn Array, index: usize) -> Result<Self, Mismatch> {
                downcast(array).map(|array: &PrimitiveArray<$arrow>| array.value(index))
            }

            fn all_from_array(array: &dyn Array) -> Option<Vec<Self>> {
                let array: &PrimitiveArray<$arrow> = downcast(array).ok()?;
                // A null value has an arbitrary number in the buffer, so the fast path must not copy it.
                (array.null_count() == 0).then(|| array.values().to_vec())
            }
        }
    };
}

primitive!(i32, Int32Type);
primitive!(i64, Int64Type);
primitive!(u8, UInt8Type);
primitive!(f32, Float32Type);
primitive!(f64, Float64Type);

impl Scalar for bool {
    fn data_type() -> DataType {
        DataType::Boolean
    }

    fn to_array<'a>(values: impl Iterator<Item = Option<&'a Self>>) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(values.map(Option::<&Self>::copied).collect::<BooleanArray>()))
    }

    fn from_array(array: &dyn Array, index: usize) -> Result<Self, Mismatch> {
        downcast(array).map(|array: &BooleanArray| array.value(index))
    }
}

impl Scalar for String {
    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn to_array<'a>(values: impl Iterator<Item = Option<&'a Self>>) -> Result<ArrayRef, ArrowError> {
        let mut texts = StringBuilder::new();
        let mut bytes = 0_usize;
        for text in values {
            // The builder would panic. The messages of a single row can be that long.
            bytes = bytes.saturating_add(text.map_or(0, String::len));
            if i32::try_from(bytes).is_err() {
                return Err(ArrowError::InvalidArgumentError(
                    "a row holds over 2^31 - 1 bytes of one text".into(),
                ));
            }
            texts.append_option(text);
        }
        Ok(Arc::new(texts.finish()))
    }

    fn from_array(array: &dyn Array, index: usize) -> Result<Self, Mismatch> {
        downcast(array).map(|array: &StringArray| array.value(index).to_owned())
    }
}

impl Scalar for Timestamp {
    fn data_type() -> DataType {
        DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
    }

    fn to_array<'a>(values: impl Iterator<Item = Option<&'a Self>>) -> Result<ArrayRef, ArrowError> {
        let nanoseconds = |time: &Timestamp| {
            // 64 bits of nanoseconds end in 2262.
            let out_of_range = |_| {
                ArrowError::InvalidArgumentError(format!(
                    "the time {time} is outside 1677 to 2262, which Parquet holds"
                ))
            };
            i64::try_from(time.as_nanosecond()).map_err(out_of_range)
        };
        let times: PrimitiveArray<TimestampNanosecondType> =
            values.map(|time| time.map(nanoseconds).transpose()).collect::<Result<_, _>>()?;
        Ok(Arc::new(times.with_timezone("UTC")))
    }

    fn from_array(array: &dyn Array, index: usize) -> Result<Self, Mismatch> {
        let times: &PrimitiveArray<TimestampNanosecondType> = downcast(array)?;
        let nanoseconds = i128::from(times.value(index));
        Self::from_nanosecond(nanoseconds).map_err(|error| Mismatch::new(error.to_string()))
    }
}

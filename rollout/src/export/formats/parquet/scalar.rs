//! Numbers, texts and times: the leaves of a row, which are its only nullable values apart from optional lists.

use jiff::Timestamp;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};

use super::mismatch::Mismatch;
use super::schema::ScalarType;
use super::shredded::Unrepresentable;

/// A value that is not a list, map or struct, and so may be null.
pub(super) trait Scalar: Sized {
    /// The type with its annotation.
    const TYPE: ScalarType;

    /// The type of the stored values.
    type Physical: DataType;

    /// Returns the size of the stored values in bytes.
    fn stored_bytes(values: &[Self]) -> usize {
        values.len().saturating_mul(<Self::Physical as DataType>::get_type_size())
    }

    /// Returns the value of a file.
    fn read(stored: &<Self::Physical as DataType>::T) -> Result<Self, Mismatch>;

    /// Adds all values as they are stored. Lists of tokens are long, so numbers are copied at once.
    fn store_all(
        values: &[Self],
        out: &mut Vec<<Self::Physical as DataType>::T>,
    ) -> Result<(), Unrepresentable>;

    /// Returns all values of a list.
    fn read_all(stored: &[<Self::Physical as DataType>::T]) -> Result<Vec<Self>, Mismatch> {
        read_each(stored)
    }
}

fn read_each<S: Scalar>(stored: &[<S::Physical as DataType>::T]) -> Result<Vec<S>, Mismatch> {
    let read = |(i, stored)| S::read(stored).map_err(|mismatch| mismatch.inside(&format!("[{i}]")));
    stored.iter().enumerate().map(read).collect()
}

/// A number or a boolean, which is stored as it is.
macro_rules! as_it_is {
    ($rust:ty, $scalar:ident, $physical:ty) => {
        impl Scalar for $rust {
            const TYPE: ScalarType = ScalarType::$scalar;

            type Physical = $physical;

            fn read(stored: &Self) -> Result<Self, Mismatch> {
                Ok(*stored)
            }

            fn store_all(values: &[Self], out: &mut Vec<Self>) -> Result<(), Unrepresentable> {
                out.extend_from_slice(values);
                Ok(())
            }

            fn read_all(stored: &[Self]) -> Result<Vec<Self>, Mismatch> {
                Ok(stored.to_vec())
            }
        }
    };
}

as_it_is!(i32, Int32, Int32Type);
as_it_is!(i64, Int64, Int64Type);
as_it_is!(f32, Float32, FloatType);
as_it_is!(f64, Float64, DoubleType);
as_it_is!(bool, Boolean, BoolType);

impl Scalar for u8 {
    const TYPE: ScalarType = ScalarType::UInt8;

    type Physical = Int32Type;

    fn read(stored: &i32) -> Result<Self, Mismatch> {
        let outside = |_| Mismatch::new(format!("is {stored}, UInt8 is expected"));
        Self::try_from(*stored).map_err(outside)
    }

    fn store_all(values: &[Self], out: &mut Vec<i32>) -> Result<(), Unrepresentable> {
        out.extend(values.iter().copied().map(i32::from));
        Ok(())
    }

    fn read_all(stored: &[i32]) -> Result<Vec<Self>, Mismatch> {
        let bits = stored.iter().fold(0, |bits, value| bits | value);
        if Self::try_from(bits).is_err() {
            // One of the values is outside. The slow path finds it.
            return read_each(stored);
        }
        let lowest_byte = |value: &i32| {
            let [byte, ..] = value.to_le_bytes();
            byte
        };
        Ok(stored.iter().map(lowest_byte).collect())
    }
}

impl Scalar for String {
    const TYPE: ScalarType = ScalarType::Utf8;

    type Physical = ByteArrayType;

    fn stored_bytes(texts: &[Self]) -> usize {
        // Each text follows its length in 32 bits.
        texts.iter().map(|text| text.len().saturating_add(size_of::<u32>())).fold(0, usize::saturating_add)
    }

    fn read(stored: &ByteArray) -> Result<Self, Mismatch> {
        let text = stored.as_utf8().map_err(|_| Mismatch::new("is not UTF-8, Utf8 is expected"))?;
        Ok(text.to_owned())
    }

    fn store_all(texts: &[Self], out: &mut Vec<ByteArray>) -> Result<(), Unrepresentable> {
        out.extend(texts.iter().map(|text| ByteArray::from(text.as_str())));
        Ok(())
    }
}

impl Scalar for Timestamp {
    const TYPE: ScalarType = ScalarType::Timestamp;

    type Physical = Int64Type;

    fn read(stored: &i64) -> Result<Self, Mismatch> {
        Self::from_nanosecond(i128::from(*stored)).map_err(|error| Mismatch::new(error.to_string()))
    }

    fn store_all(times: &[Self], out: &mut Vec<i64>) -> Result<(), Unrepresentable> {
        for time in times {
            // 64 bits of nanoseconds end in 2262.
            out.push(i64::try_from(time.as_nanosecond()).map_err(|_| {
                Unrepresentable::new(format!("the time {time} is outside 1677 to 2262, which Parquet holds"))
            })?);
        }
        Ok(())
    }
}

//! Serialises lists of numbers without an intermediate JSON value: exactly, or with an error.

use serde::ser::{Error, SerializeSeq};
use serde::{Serialize, Serializer};

/// The items of an iterator as a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Each<I>(pub(crate) I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Each<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

/// A list of floats, each with enough digits to restore the same bits. JSON has no NaN and no infinities. Such a value
/// is an error, because a reader would take `null` for "none".
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exact<I>(pub(crate) I);

impl<I: Iterator<Item: Serialize + Copy + Into<f64>> + Clone> Serialize for Exact<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for (index, value) in self.0.clone().enumerate() {
            let as_f64: f64 = value.into();
            if !as_f64.is_finite() {
                return Err(S::Error::custom(format_args!("a float at index {index} is {as_f64}")));
            }
            list.serialize_element(&value)?;
        }
        list.end()
    }
}

/// Serialises an optional number, such as a reward. A number that is not finite is an error.
pub(crate) fn finite<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(number) if !number.is_finite() => Err(S::Error::custom(format_args!("a number is {number}"))),
        value => value.serialize(serializer),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn floats_come_back_with_the_same_bits(floats in proptest::collection::vec(any::<f32>(), 0..50)) {
            let written = serde_json::to_string(&Exact(floats.iter().copied()));
            if floats.iter().all(|float| float.is_finite()) {
                let read: Vec<f32> = serde_json::from_str(&written.unwrap()).unwrap();
                let bits = |floats: &[f32]| floats.iter().map(|float| float.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&read), bits(&floats));
            } else {
                prop_assert!(written.is_err());
            }
        }
    }
}

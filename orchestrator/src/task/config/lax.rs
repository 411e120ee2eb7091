//! Numbers as Harbor takes them: also as a text like `"2"`, and a whole number also as `2.0`.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// A number of `task.toml`.
pub(super) trait Number: Copy + FromStr {
    /// A description for errors.
    const EXPECTED: &'static str;

    /// Converts a number without loss, or returns `None`.
    fn of(number: f64) -> Option<Self>;
}

impl Number for f64 {
    const EXPECTED: &'static str = "a number";

    fn of(number: f64) -> Option<Self> {
        Some(number)
    }
}

macro_rules! whole_number {
    ($($type:ty),*) => {
        $(impl Number for $type {
            const EXPECTED: &'static str = "a whole number from 0";

            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the number is whole and in range"
            )]
            fn of(number: f64) -> Option<Self> {
                // All whole numbers up to this one have an exact `f64`.
                const LARGEST: f64 = 9_007_199_254_740_992.0;
                let is_whole = number.fract() == 0.0 && (0.0..=LARGEST.min(<$type>::MAX as f64)).contains(&number);
                is_whole.then_some(number as Self)
            }
        })*
    };
}

whole_number!(u32, u64);

struct Lax<N>(PhantomData<N>);

impl<N: Number> Visitor<'_> for Lax<N> {
    type Value = N;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(N::EXPECTED)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<N, E> {
        // The text of an integer is exact, unlike its `f64`.
        let exact = number.to_string().parse().ok();
        exact.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<N, E> {
        N::of(number).ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<N, E> {
        let trimmed = text.trim();
        let number = trimmed.parse().ok().or_else(|| N::of(trimmed.parse().ok()?));
        number.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// Deserializes a number.
pub(super) fn number<'de, D: Deserializer<'de>, N: Number>(deserializer: D) -> Result<N, D::Error> {
    deserializer.deserialize_any(Lax(PhantomData))
}

/// Deserializes the number of a key that may be absent.
pub(super) fn given<'de, D: Deserializer<'de>, N: Number>(deserializer: D) -> Result<Option<N>, D::Error> {
    number(deserializer).map(Some)
}

/// Deserializes a text. An empty text counts as absent.
pub(super) fn filled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Table {
        #[serde(deserialize_with = "number")]
        seconds: f64,
        #[serde(default, deserialize_with = "given")]
        size: Option<u64>,
    }

    fn table(text: &str) -> Result<(f64, Option<u64>), String> {
        let table: Table = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        Ok((table.seconds, table.size))
    }

    #[test]
    fn numbers_may_be_texts_and_whole_numbers_may_have_a_point() {
        assert_eq!(table("seconds = 60"), Ok((60.0, None)));
        assert_eq!(table("seconds = \" 1.5 \"\nsize = \"2048\""), Ok((1.5, Some(2048))));
        assert_eq!(table("seconds = 1\nsize = 2048.0"), Ok((1.0, Some(2048))));
        assert_eq!(table("seconds = 1\nsize = 9223372036854775807"), Ok((1.0, Some(i64::MAX as u64))));
    }

    #[test]
    fn other_values_are_errors() {
        let expected = |value: &str, text: &str| {
            assert_eq!(table(text).unwrap_err(), format!("invalid value: {value}"), "{text}");
        };
        expected("string \"soon\", expected a number", "seconds = \"soon\"");
        expected("floating point `0.5`, expected a whole number from 0", "seconds = 1\nsize = 0.5");
        expected("integer `-1`, expected a whole number from 0", "seconds = 1\nsize = -1");
        assert!(table("seconds = true").unwrap_err().starts_with("invalid type: boolean `true`"));
    }
}

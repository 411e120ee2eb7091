//! A faster JSON serialiser for data that is mostly numbers. Its output equals that of serde_json byte for byte.
//!
//! serde_json writes each number and each comma separately, with a length that is not known at compile time. Copying so
//! few bytes costs more than formatting them. Here every length is a constant.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// Appends the JSON of `value` to `out`. Numbers have enough digits to restore the same bits.
pub(crate) fn append(out: &mut Vec<u8>, value: &impl Serialize) -> Result<(), serde_json::Error> {
    value.serialize(&mut Serializer::with_formatter(out, Numbers::default()))
}

/// serde_json's compact format, with faster numbers.
#[derive(Default)]
struct Numbers {
    /// The bits and the text of the previous float, because each token of a trial has the same advantage.
    last: (u32, Vec<u8>),
}

impl Formatter for Numbers {
    fn write_u8<W: ?Sized + Write>(&mut self, out: &mut W, value: u8) -> io::Result<()> {
        write_digits(out, u32::from(value))
    }

    fn write_i32<W: ?Sized + Write>(&mut self, out: &mut W, value: i32) -> io::Result<()> {
        if value < 0 {
            out.write_all(b"-")?;
        }
        write_digits(out, value.unsigned_abs())
    }

    fn write_f32<W: ?Sized + Write>(&mut self, out: &mut W, value: f32) -> io::Result<()> {
        // The most common value: tokens that were not sampled have 0.0. Negative zero has other bits and is written
        // with its sign.
        if value.to_bits() == 0 {
            return out.write_all(b"0.0");
        }
        let (bits, text) = &mut self.last;
        // Compares bits, because two equal floats may have different texts: 0.0 and -0.0.
        if *bits != value.to_bits() {
            text.clear();
            serde_json::ser::CompactFormatter.write_f32(text, value)?;
            *bits = value.to_bits();
        }
        out.write_all(text)
    }
}

/// Writes a number. Token ids have at most six digits, and longer numbers are rare.
fn write_digits<W: ?Sized + Write>(out: &mut W, value: u32) -> io::Result<()> {
    let [a, b, c] = three_digits(value % 1000);
    let [x, y, z] = three_digits(value / 1000 % 1000);
    match value {
        0..10 => out.write_all(&[c]),
        10..100 => out.write_all(&[b, c]),
        100..1000 => out.write_all(&[a, b, c]),
        1000..10_000 => out.write_all(&[z, a, b, c]),
        10_000..100_000 => out.write_all(&[y, z, a, b, c]),
        100_000..1_000_000 => out.write_all(&[x, y, z, a, b, c]),
        // Longer numbers are rare, so the general path is sufficient.
        _ => serde_json::ser::CompactFormatter.write_u32(out, value),
    }
}

/// Returns the digits of a number below 1000.
fn three_digits(value: u32) -> [u8; 3] {
    DIGITS.get(value as usize).copied().unwrap_or_default()
}

const DIGITS: [[u8; 3]; 1000] = digits();

const fn digits() -> [[u8; 3]; 1000] {
    let mut table = [[b'0'; 3]; 1000];
    let mut value: usize = 0;
    while value < 1000 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::indexing_slicing,
            reason = "each is a digit, each is below 1000"
        )]
        {
            table[value] =
                [b'0' + (value / 100) as u8, b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8];
        }
        value += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn appended(value: &impl Serialize) -> String {
        let mut out = Vec::new();
        append(&mut out, value).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_of_each_length_are_those_of_serde_json() {
        let edges = (0..10).flat_map(|power| {
            let ten = 10_i32.pow(power);
            [ten - 1, ten, ten + 1, -ten]
        });
        let integers: Vec<i32> = edges.chain([i32::MIN, i32::MAX]).chain(-1100..1100).collect();
        assert_eq!(appended(&integers), serde_json::to_string(&integers).unwrap());
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(appended(&bytes), serde_json::to_string(&bytes).unwrap());
        let floats = [0.0_f32, -0.0, 1.0, -0.1, f32::MIN_POSITIVE, f32::MAX, f32::EPSILON];
        assert_eq!(appended(&floats), serde_json::to_string(&floats).unwrap());
        assert_eq!(appended(&f32::NAN), "null");
    }

    proptest! {
        #[test]
        fn any_value_has_the_text_of_serde_json(
            integers: Vec<i32>, bytes: Vec<u8>, floats: Vec<f32>, wide: Vec<(i64, f64)>, text: String, flag: Option<bool>,
        ) {
            let value = (integers, bytes, floats, wide, text, flag);
            prop_assert_eq!(appended(&value), serde_json::to_string(&value).unwrap());
        }
    }
}

//! Parses decimal numbers of JSON as 32-bit numbers, in one pass. vLLM's answers have one for each token.
//!
//! The result is that of a correctly rounded 64-bit number, which is then rounded to 32 bits. Numbers of another form or
//! of many digits are left to the caller's other parser.

/// The powers of ten, each rounded to 64 bits. The smallest logprob that vLLM prints has about 24 places: a confident
/// token has one of -1.1920928244535389e-7.
const POWERS: [f64; 33] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31, 1e32,
];
/// The powers up to here are exact as 64-bit numbers.
const LARGEST_EXACT_POWER: usize = 22;
/// Above this mantissa, another digit could exceed 64 bits.
const LARGEST_MANTISSA: u64 = u64::MAX / 10 - 1;
/// The integers up to here are exact as 64-bit numbers.
const LARGEST_EXACT: u64 = 1 << 53;
/// The bits of a 64-bit mantissa that a 32-bit number lacks.
const LOST_BITS: u64 = (1 << 29) - 1;
/// The lost bits of a number in the middle between two 32-bit numbers.
const MIDDLE: u64 = 1 << 28;
/// The maximum error of the mantissa after three roundings, in units of its last bit, with a margin.
const ERROR: u64 = 8;

/// The digits read so far.
#[derive(Clone, Copy, Default)]
struct Decimal {
    mantissa: u64,
    digits: usize,
}

/// Parses the number at the beginning of `text`. Returns it with the bytes behind it, or `None` for a number with a
/// positive exponent, with more digits than fit, or near the middle between two 32-bit numbers.
pub(crate) fn plain_single(text: &[u8]) -> Option<(f32, &[u8])> {
    let (is_negative, text) = match text {
        [b'-', text @ ..] => (true, text),
        text => (false, text),
    };
    // Most logprobs begin with 0. JSON has no other number that does, and no number without digits.
    let (whole, mut rest) = match text {
        [b'0', rest @ ..] => (Decimal { mantissa: 0, digits: 1 }, rest),
        text => Decimal::default().read(text)?,
    };
    if whole.digits == 0 {
        return None;
    }
    let mut decimal = whole;
    if let Some(fraction) = rest.strip_prefix(b".") {
        (decimal, rest) = whole.read(fraction)?;
        if decimal.digits == whole.digits {
            return None;
        }
    }
    let mut places = decimal.digits - whole.digits;
    if let [b'e' | b'E', b'-', exponent @ ..] = rest {
        let (exponent, behind) = Decimal::default().read(exponent)?;
        // A large exponent may have leading zeros, but no digits are no exponent.
        places =
            places.checked_add(usize::try_from(exponent.mantissa).ok().filter(|_| exponent.digits > 0)?)?;
        rest = behind;
    }
    if rest.first().is_some_and(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-')) {
        return None;
    }
    let number = rounded(decimal.mantissa, places)?;
    Some((if is_negative { -number } else { number }, rest))
}

impl Decimal {
    /// Appends the digits at the beginning of `text`. Returns the bytes behind them.
    fn read(mut self, mut text: &[u8]) -> Option<(Self, &[u8])> {
        while let Some((&eight, rest)) = text.split_first_chunk::<8>()
            && let Some(value) = eight_digits(eight)
            && self.mantissa < LARGEST_MANTISSA / 10_000_000
        {
            (self.mantissa, text) = (self.mantissa * 100_000_000 + u64::from(value), rest);
            self.digits += 8;
        }
        while let Some((digit, rest)) = text.split_first().filter(|(digit, _)| digit.is_ascii_digit()) {
            if self.mantissa > LARGEST_MANTISSA {
                return None;
            }
            (self.mantissa, text) = (self.mantissa * 10 + u64::from(digit - b'0'), rest);
            self.digits += 1;
        }
        Some((self, text))
    }
}

/// Returns the value of eight digits, or `None` if one of the bytes is no digit. The bytes are processed together.
fn eight_digits(bytes: [u8; 8]) -> Option<u32> {
    let bytes = u64::from_le_bytes(bytes);
    // The high half of each digit is 3, and stays 3 after an addition of 6 to the low half.
    let high = bytes & 0xf0f0_f0f0_f0f0_f0f0;
    let high_after = bytes.wrapping_add(0x0606_0606_0606_0606) & 0xf0f0_f0f0_f0f0_f0f0;
    if high != 0x3030_3030_3030_3030 || high_after != high {
        return None;
    }
    Some(joined(bytes & 0x0f0f_0f0f_0f0f_0f0f))
}

/// Reads the number of at most seven digits at the beginning of `text`. Returns it with the bytes behind it, or `None` if
/// the text has another form or fewer than eight bytes.
pub(crate) fn short_number(text: &[u8]) -> Option<(u32, &[u8])> {
    let bytes = u64::from_le_bytes(*text.first_chunk()?);
    // The low half of a byte is the digit, and the rest is 0 for digits alone. A carry changes only later bytes.
    let digits = bytes ^ 0x3030_3030_3030_3030;
    let others = (digits | digits.wrapping_add(0x0606_0606_0606_0606)) & 0xf0f0_f0f0_f0f0_f0f0;
    let length = others.trailing_zeros() / 8;
    // JSON has no leading zeros.
    if length == 0 || length == 8 || (length > 1 && text.first() == Some(&b'0')) {
        return None;
    }
    // The digits become the last ones of eight, behind zeros.
    let value = joined(digits << (64 - 8 * length) & 0x0f0f_0f0f_0f0f_0f0f);
    Some((value, text.get(length as usize..)?))
}

/// Joins eight digits, the first in the lowest byte: digits to pairs, pairs to fours, and fours to the result.
fn joined(digits: u64) -> u32 {
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff) as u32
}

/// Returns `mantissa / 10^places`, rounded to 64 bits and then to 32 bits. `None` if the result is not certain.
fn rounded(mantissa: u64, places: usize) -> Option<f32> {
    let number = mantissa as f64 / POWERS.get(places)?;
    // With an exact mantissa and power the division is the only rounding, so the 64-bit number is correct.
    if mantissa <= LARGEST_EXACT && places <= LARGEST_EXACT_POWER {
        return Some(number as f32);
    }
    // Otherwise it may differ in its last bits, which matters only near the middle of two 32-bit numbers.
    let from_middle = (number.to_bits() & LOST_BITS).abs_diff(MIDDLE);
    let is_normal = (f64::from(f32::MIN_POSITIVE)..f64::from(f32::MAX)).contains(&number);
    (is_normal && from_middle > ERROR).then_some(number as f32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<(f32, &str)> {
        let (number, rest) = plain_single(text.as_bytes())?;
        Some((number, std::str::from_utf8(rest).unwrap()))
    }

    #[test]
    fn numbers_end_where_their_digits_end() {
        assert_eq!(read("-0.5,"), Some((-0.5, ",")));
        assert_eq!(read("12]"), Some((12.0, "]")));
        assert_eq!(read("0.12345678901234567}"), Some((0.123_456_79, "}")));
        assert_eq!(read("-1.5E-7}"), Some((-1.5e-7, "}")));
        assert_eq!(read("12e-02,"), Some((0.12, ",")));
        assert!(read("-0.0").unwrap().0.is_sign_negative());
    }

    #[test]
    fn other_forms_are_left_to_another_parser() {
        for text in [
            "",
            "-",
            "01",
            "1.",
            ".5",
            "1e3",
            "1e-",
            "1e-5.0",
            "1e-5e-5",
            "1e-33",
            "+1",
            "1.2.3",
            "null",
            "18446744073709551616",
            "1-",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_number_in_the_middle_of_two_is_left_to_another_parser() {
        // 1 + 2^-24 is in the middle, and its 64-bit neighbours are nearer to one side.
        for text in ["1.000000059604644775", "1.0000000596046447754", "10000000596046447754e-19"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn vllms_logprobs_are_read_exactly(number in prop_oneof![-100.0_f32..0.0, -1e-3_f32..0.0, any::<f32>()]) {
            // vLLM prints a 32-bit number with the digits of a 64-bit number.
            for text in [format!("{},", f64::from(number)), format!("{:e},", f64::from(number))] {
                if let Some((read, rest)) = read(&text) {
                    prop_assert_eq!(read.to_bits(), number.to_bits());
                    prop_assert_eq!(rest, ",");
                }
            }
        }

        #[test]
        fn confident_tokens_are_read_without_another_parser(number in -1e-4_f32..-1e-12) {
            let text = format!("{:e},", f64::from(number));
            prop_assert_eq!(read(&text).map(|(read, _)| read.to_bits()), Some(number.to_bits()));
        }

        #[test]
        fn every_number_is_that_of_the_standard_library(text in "-?[0-9]{1,21}(\\.[0-9]{0,24})?([eE]-?[0-9]{1,2})?") {
            if let Some((number, rest)) = read(&text) {
                prop_assert_eq!(rest, "");
                prop_assert_eq!(number.to_bits(), (text.parse::<f64>().unwrap() as f32).to_bits());
            }
        }

        #[test]
        fn eight_digits_are_their_value(text in "[0-9]{8}") {
            prop_assert_eq!(eight_digits(text.as_bytes().try_into().unwrap()), Some(text.parse().unwrap()));
        }

        #[test]
        fn a_short_number_is_what_serde_reads(text in "(0|[1-9][0-9]{0,8})[,\\]x][0-9a-z]{7}") {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            let read = short_number(text.as_bytes());
            prop_assert_eq!(read.is_some(), digits < 8);
            if let Some((value, rest)) = read {
                prop_assert_eq!(value, serde_json::from_str::<u32>(&text[..digits]).unwrap());
                prop_assert_eq!(rest, &text.as_bytes()[digits..]);
            }
        }

        #[test]
        fn arbitrary_bytes_are_no_short_number(text in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Some((value, rest)) = short_number(&text) {
                let digits = std::str::from_utf8(&text[..text.len() - rest.len()]).unwrap();
                prop_assert_eq!(value.to_string(), digits);
            }
        }

        #[test]
        fn bytes_with_another_are_not_eight_digits(bytes: [u8; 8]) {
            let are_digits = bytes.iter().all(u8::is_ascii_digit);
            prop_assert_eq!(eight_digits(bytes).is_some(), are_digits);
        }
    }
}

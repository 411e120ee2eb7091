//! Variable-length integers: seven bits per byte, lowest bits first. The eighth bit is set if more bytes follow.

/// A buffer to which numbers are appended.
pub(crate) trait NumbersMut {
    fn put_number(&mut self, number: u64);
}

impl NumbersMut for Vec<u8> {
    fn put_number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.push(number as u8);
    }
}

/// Reads numbers and other bytes in order.
pub(crate) struct Numbers<'a>(&'a [u8]);

impl<'a> Numbers<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads a number. Returns `None` if the bytes end too early or the number has more than 10 bytes.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        // 64 bits take at most ten groups of seven bits.
        for place in 0..10 {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f).checked_shl(7 * place)?;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    /// The bytes that have not been read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(numbers in prop::collection::vec(any::<u64>().prop_map(|n| n >> (n % 64)), 0..20)) {
            let mut bytes = Vec::new();
            numbers.iter().for_each(|&number| bytes.put_number(number));
            let mut read = Numbers::of(&bytes);
            for number in numbers {
                prop_assert_eq!(read.number(), Some(number));
            }
            prop_assert!(read.is_empty());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut read = Numbers::of(&bytes);
            while let Some(number) = read.number() {
                read.bytes(number % 5);
            }
        }
    }
}

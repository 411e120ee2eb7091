//! What a record holds: its kind and its trial in front, so that a whole store is looked through without reading what calls
//! said; the rest compressed where that helps.

use std::borrow::Cow;
use std::io;

use super::numbers::{Numbers, NumbersMut};

/// Names a trial within the store. 0 is no trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TrialNumber(pub(super) u64);

/// What kind of record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An event in JSON.
    Event,
    /// What a call came to.
    Call,
    /// A call is about to go upstream.
    Intent,
    /// A long text that calls refer to.
    Text,
}

/// The bit of the first byte that says that the body is compressed.
const IS_COMPRESSED: u8 = 0x80;
/// Shorter bodies do not get smaller.
const COMPRESSED_FROM: usize = 64;
/// zstd's fastest but for those that give much away: calls wait for it.
const LEVEL: i32 = 1;
/// No body is longer: answers are limited to 1 GiB.
const LONGEST: u64 = 4 << 30;

/// What bodies are compressed with in mind: words that nearly every record has. Part of the format, so it never changes.
const DICTIONARY: &[u8] = include_bytes!("dictionary.txt");

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        // 1 and 2 are the kinds of the first format.
        match byte & !IS_COMPRESSED {
            16 => Some(Self::Event),
            17 => Some(Self::Call),
            18 => Some(Self::Intent),
            19 => Some(Self::Text),
            _ => None,
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Event => 16,
            Self::Call => 17,
            Self::Intent => 18,
            Self::Text => 19,
        }
    }
}

/// Makes contents.
pub(super) struct Packer {
    compressor: zstd::bulk::Compressor<'static>,
    compressed: Vec<u8>,
}

impl Packer {
    pub(super) fn new() -> io::Result<Self> {
        let compressor = zstd::bulk::Compressor::with_dictionary(LEVEL, DICTIONARY)?;
        Ok(Self { compressor, compressed: Vec::new() })
    }

    /// Appends a record's content. `plain` stands in front of the body and is never compressed.
    pub(super) fn pack(
        &mut self,
        kind: Kind,
        trial: TrialNumber,
        plain: &[u8],
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.compressed.clear();
        if body.len() >= COMPRESSED_FROM {
            self.compressed.reserve(zstd::zstd_safe::compress_bound(body.len()));
            self.compressor.compress_to_buffer(body, &mut self.compressed)?;
        }
        let is_compressed = !self.compressed.is_empty() && self.compressed.len() + 4 < body.len();
        out.push(if is_compressed { kind.byte() | IS_COMPRESSED } else { kind.byte() });
        out.put_number(trial.0);
        out.extend_from_slice(plain);
        if is_compressed {
            out.put_number(body.len() as u64);
            out.extend_from_slice(&self.compressed);
        } else {
            out.extend_from_slice(body);
        }
        Ok(())
    }
}

/// A content whose body has not been looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content<'a> {
    pub(super) kind: Kind,
    pub(super) trial: TrialNumber,
    is_compressed: bool,
    rest: &'a [u8],
}

impl<'a> Content<'a> {
    /// Says in words what is wrong with it.
    pub(super) fn read(content: &'a [u8]) -> Result<Self, String> {
        let (&first, rest) = content.split_first().ok_or("a record without content")?;
        let kind = Kind::of(first)
            .ok_or_else(|| format!("a record of kind {first}, which this rolltap does not know"))?;
        let mut numbers = Numbers::of(rest);
        let trial = numbers.number().ok_or("a record without its trial")?;
        Ok(Self {
            kind,
            trial: TrialNumber(trial),
            is_compressed: first & IS_COMPRESSED != 0,
            rest: numbers.rest(),
        })
    }

    /// The first bytes behind the trial, which are not compressed, and what follows them.
    pub(super) fn split_plain<const N: usize>(self) -> Result<([u8; N], Self), String> {
        let (plain, rest) = self.rest.split_first_chunk().ok_or("a record that ends too early")?;
        Ok((*plain, Self { rest, ..self }))
    }

    /// What was compressed, as it was.
    pub(super) fn body(self) -> Result<Cow<'a, [u8]>, String> {
        if !self.is_compressed {
            return Ok(Cow::Borrowed(self.rest));
        }
        let mut numbers = Numbers::of(self.rest);
        let length = numbers.number().filter(|&length| length <= LONGEST).ok_or("a record of no length")?;
        let mut decompressor =
            zstd::bulk::Decompressor::with_dictionary(DICTIONARY).map_err(|error| error.to_string())?;
        let length = usize::try_from(length).map_err(|error| error.to_string())?;
        let body = decompressor.decompress(numbers.rest(), length).map_err(|error| error.to_string())?;
        if body.len() == length { Ok(Cow::Owned(body)) } else { Err("a record of another length".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_packed_is_read(plain: [u8; 3], word in "[a-z]{0,9}", times in 0_usize..200, trial: u64) {
            let body = word.repeat(times).into_bytes();
            let mut out = vec![9];
            let mut packer = Packer::new().unwrap();
            packer.pack(Kind::Call, TrialNumber(trial), &plain, &body, &mut out).unwrap();
            let content = Content::read(&out[1..]).unwrap();
            prop_assert_eq!((content.kind, content.trial), (Kind::Call, TrialNumber(trial)));
            let (front, content) = content.split_plain::<3>().unwrap();
            prop_assert_eq!(front, plain);
            prop_assert_eq!(&*content.body().unwrap(), &*body);
        }

        #[test]
        fn arbitrary_bytes_never_panic(content in prop::collection::vec(any::<u8>(), 0..60), first in prop::sample::select(vec![16_u8, 17, 0x90, 0x91])) {
            let content = [vec![first], content].concat();
            if let Ok(content) = Content::read(&content) {
                let _ = content.body();
                let _ = content.split_plain::<16>().map(|(_, rest)| rest.body().map(|body| body.len()));
            }
        }
    }
}

//! The content of a record. The kind and the trial come first and uncompressed, so that recovery scans a store without
//! decoding calls. The body is compressed if that makes it smaller.

use std::borrow::Cow;
use std::io;

use zstd::zstd_safe::{CParameter, ParamSwitch};

use super::logprobs::Planes;
use super::varint::{Numbers, NumbersMut};

/// Identifies a trial within the store. 0 stands for no trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TrialNumber(pub(crate) u64);

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An event in JSON.
    Event,
    /// The outcome of a call.
    Call,
    /// A call is about to go upstream.
    Intent,
    /// A long text that calls refer to.
    Text,
}

/// The bit of the first byte that marks a compressed body.
const IS_COMPRESSED: u8 = 0x80;
/// The bit that marks a dictionary with text of an earlier record (see [`super::dictionary`]).
const HAS_WORDS: u8 = 0x40;
/// Bodies with fewer bytes are not compressed, because they do not get smaller.
const COMPRESSED_FROM: usize = 64;
/// Bodies with fewer bytes are compressed without Huffman codes, except texts. Building the codes takes half of the time
/// and saves a tenth of such a body.
const HUFFMAN_FROM: usize = 1536;
/// The fastest zstd level except the negative ones, which compress long bodies much worse. Calls wait for the compression.
const LEVEL: i32 = 1;
/// The level of short bodies. Most of their bytes are JSON of the base dictionary, and noise. This level takes two thirds
/// of the time of level 1, and its records are 3 % longer.
const LEVEL_OF_SHORT: i32 = -4;
/// The level with text of earlier records. It finds more, for a tenth of a millisecond more if a turn is long.
const LEVEL_WITH_WORDS: i32 = 6;
/// The maximum length of a body in bytes. Answers are limited to 1 GiB, so no body is longer.
const LONGEST: u64 = 4 << 30;

/// The base dictionary: words that nearly every record has. It is part of the format, so it never changes.
pub(crate) const DICTIONARY: &[u8] = include_bytes!("dictionary.txt");

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        // 1 and 2 are the kinds of the first format.
        match byte & !(IS_COMPRESSED | HAS_WORDS) {
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

/// The dictionary of a body.
pub(crate) struct Words {
    /// The distance in bytes to the earlier record that the dictionary is made of.
    pub(crate) distance: u64,
    /// The [`DICTIONARY`], then the text of earlier records.
    pub(crate) words: Vec<u8>,
}

/// Encodes and compresses the contents of records.
pub(crate) struct Packer {
    compressor: zstd::bulk::Compressor<'static>,
    /// For short bodies except texts.
    of_short: zstd::bulk::Compressor<'static>,
    /// For bodies with text of earlier records. Its dictionary is set for each body.
    with_words: zstd::bulk::Compressor<'static>,
    /// For logprobs. It has no dictionary.
    of_planes: zstd::bulk::Compressor<'static>,
    compressed: Vec<u8>,
}

impl Packer {
    pub(crate) fn new() -> io::Result<Self> {
        let compressor = zstd::bulk::Compressor::with_dictionary(LEVEL, DICTIONARY)?;
        let mut of_short = zstd::bulk::Compressor::with_dictionary(LEVEL_OF_SHORT, DICTIONARY)?;
        of_short.set_parameter(CParameter::LiteralCompressionMode(ParamSwitch::Disable))?;
        let mut with_words = zstd::bulk::Compressor::new(LEVEL_WITH_WORDS)?;
        // With another dictionary the body would decompress to other bytes. Only the checksum detects this.
        with_words.include_checksum(true)?;
        // Records state the length themselves.
        with_words.include_contentsize(false)?;
        let mut of_planes = zstd::bulk::Compressor::new(LEVEL)?;
        of_planes.include_contentsize(false)?;
        Ok(Self { compressor, of_short, with_words, of_planes, compressed: Vec::new() })
    }

    /// Appends logprobs, which precede the body of a record.
    pub(crate) fn pack_planes(&mut self, planes: &Planes, out: &mut Vec<u8>) -> io::Result<()> {
        planes.pack(&mut self.of_planes, &mut self.compressed, out)
    }

    /// Appends a record's content. `plain` precedes the body and is never compressed.
    pub(crate) fn pack(
        &mut self,
        kind: Kind,
        trial: TrialNumber,
        plain: &[u8],
        body: &[u8],
        words: Option<Words>,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.compress(kind, body, words.as_ref())?;
        // A compressed body also needs its length and a distance, which take about 4 bytes.
        let is_compressed = !self.compressed.is_empty() && self.compressed.len() + 4 < body.len();
        let words = words.filter(|_| is_compressed);
        let flags = (u8::from(is_compressed) * IS_COMPRESSED) | (u8::from(words.is_some()) * HAS_WORDS);
        out.push(kind.byte() | flags);
        out.put_number(trial.0);
        out.extend_from_slice(plain);
        if is_compressed {
            out.put_number(body.len() as u64);
            if let Some(words) = words {
                out.put_number(words.distance);
            }
            out.extend_from_slice(&self.compressed);
        } else {
            out.extend_from_slice(body);
        }
        Ok(())
    }

    fn compress(&mut self, kind: Kind, body: &[u8], words: Option<&Words>) -> io::Result<()> {
        self.compressed.clear();
        if body.len() < COMPRESSED_FROM {
            // The caller reads an empty buffer as "not compressed".
            return Ok(());
        }
        self.compressed.reserve(zstd::zstd_safe::compress_bound(body.len()));
        let compressor = match words {
            None if body.len() < HUFFMAN_FROM && kind != Kind::Text => &mut self.of_short,
            None => &mut self.compressor,
            Some(Words { words, .. }) => {
                self.with_words.set_dictionary(LEVEL_WITH_WORDS, words)?;
                &mut self.with_words
            }
        };
        compressor.compress_to_buffer(body, &mut self.compressed).map(drop)
    }
}

/// A content whose body has not been decompressed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content<'a> {
    pub(crate) kind: Kind,
    pub(crate) trial: TrialNumber,
    is_compressed: bool,
    has_words: bool,
    rest: &'a [u8],
}

impl<'a> Content<'a> {
    /// Reads the kind and the trial. The error describes the defect.
    pub(crate) fn read(content: &'a [u8]) -> Result<Self, String> {
        let (&first, rest) = content.split_first().ok_or("a record without content")?;
        let kind = Kind::of(first)
            .ok_or_else(|| format!("a record of kind {first}, which this rolltap does not know"))?;
        let mut numbers = Numbers::of(rest);
        let trial = numbers.number().ok_or("a record without its trial")?;
        Ok(Self {
            kind,
            trial: TrialNumber(trial),
            is_compressed: first & IS_COMPRESSED != 0,
            has_words: first & HAS_WORDS != 0,
            rest: numbers.rest(),
        })
    }

    /// Splits off the first `N` bytes after the trial, which are not compressed.
    pub(crate) fn split_plain<const N: usize>(self) -> Result<([u8; N], Self), String> {
        let (plain, rest) = self.rest.split_first_chunk().ok_or("a record that ends too early")?;
        Ok((*plain, Self { rest, ..self }))
    }

    /// Splits off the logprobs that precede the body.
    pub(crate) fn split_planes(self) -> Result<(Planes, Self), String> {
        let mut numbers = Numbers::of(self.rest);
        let planes = Planes::read(&mut numbers).ok_or("logprobs that cannot be read")?;
        Ok((planes, Self { rest: numbers.rest(), ..self }))
    }

    /// Decompresses the body. Fails if its dictionary contains text of another record.
    pub(crate) fn body(self) -> Result<Cow<'a, [u8]>, String> {
        self.body_with(|distance, _| Err(format!("it takes the record {distance} bytes before it")))
    }

    /// Decompresses the body. `words` returns the dictionary, given the distance in bytes to the record that it is made
    /// of, and the length of the body.
    pub(crate) fn body_with(
        self,
        words: impl FnOnce(u64, usize) -> Result<Vec<u8>, String>,
    ) -> Result<Cow<'a, [u8]>, String> {
        if !self.is_compressed {
            return Ok(Cow::Borrowed(self.rest));
        }
        let mut numbers = Numbers::of(self.rest);
        // The limit prevents a huge allocation for a damaged length.
        let length = numbers.number().filter(|&length| length <= LONGEST).ok_or("a record of no length")?;
        let length = usize::try_from(length).map_err(|error| error.to_string())?;
        let dictionary = if self.has_words {
            let distance = numbers.number().ok_or("a record that ends too early")?;
            Cow::Owned(words(distance, length)?)
        } else {
            Cow::Borrowed(DICTIONARY)
        };
        let mut decompressor =
            zstd::bulk::Decompressor::with_dictionary(&dictionary).map_err(|error| error.to_string())?;
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
            packer.pack(Kind::Call, TrialNumber(trial), &plain, &body, None, &mut out).unwrap();
            let content = Content::read(&out[1..]).unwrap();
            prop_assert_eq!((content.kind, content.trial), (Kind::Call, TrialNumber(trial)));
            let (front, content) = content.split_plain::<3>().unwrap();
            prop_assert_eq!(front, plain);
            prop_assert_eq!(&*content.body().unwrap(), &*body);
        }

        #[test]
        fn what_is_packed_with_words_in_mind_takes_them(word in "[a-z]{20,40}", times in 4_usize..200) {
            let body = word.repeat(times).into_bytes();
            let words = [DICTIONARY, word.as_bytes()].concat();
            let mut out = Vec::new();
            let with = Words { distance: 7, words: words.clone() };
            Packer::new().unwrap().pack(Kind::Text, TrialNumber(1), &[], &body, Some(with), &mut out).unwrap();
            let content = Content::read(&out).unwrap();
            let read = content.body_with(|distance, length| {
                assert_eq!((distance, length), (7, body.len()));
                Ok(words.clone())
            });
            prop_assert_eq!(&*read.unwrap(), &*body);
            prop_assert!(content.body().is_err());
            let other = [DICTIONARY, word.to_uppercase().as_bytes()].concat();
            prop_assert!(content.body_with(|_, _| Ok(other)).is_err(), "other words are not taken for these");
        }

        #[test]
        fn arbitrary_bytes_never_panic(content in prop::collection::vec(any::<u8>(), 0..60), first in prop::sample::select(vec![16_u8, 17, 0x90, 0x91, 0xd1])) {
            let content = [vec![first], content].concat();
            if let Ok(content) = Content::read(&content) {
                let _ = content.body();
                let _ = content.split_plain::<16>().map(|(_, rest)| rest.body().map(|body| body.len()));
            }
        }
    }

    #[test]
    fn fuzz_record_content() {
        let packer = std::sync::Mutex::new(Packer::new().unwrap());
        rolltap_testing::fuzz!("record_content", |bytes| {
            if let Ok(content) = Content::read(bytes) {
                let _ = content.body();
                let _ = content.body_with(|_, length| Ok(vec![b'a'; length.min(64)]));
                let _ = content.split_planes().and_then(|(_, rest)| rest.body());
                let _ = content.split_plain::<16>().and_then(|(_, rest)| rest.split_planes());
            }
            let mut out = Vec::new();
            packer.lock().unwrap().pack(Kind::Text, TrialNumber(1), &[], bytes, None, &mut out).unwrap();
            assert_eq!(&*Content::read(&out).unwrap().body().unwrap(), bytes);
        });
    }
}

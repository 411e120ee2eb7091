//! Encodes logprobs as four byte planes: the lowest byte of each logprob, then the second lowest, and so on.
//!
//! The low bytes of a logprob are nearly random, except for tokens of which the policy was sure. The highest bytes are
//! alike. So each plane is compressed by itself if that helps, and apart from the rest of the record. Among ids and
//! words, the noise would worsen their compression.

use std::io;

use rolltap_rollout::token::Logprob;

use super::varint::{Numbers, NumbersMut};

/// Planes with fewer bytes are not compressed, because the gain is not worth the time.
const COMPRESSED_FROM: usize = 128;
/// The maximum length of a plane. Answers are limited to 1 GiB of JSON, so no plane is longer.
const LONGEST: u64 = 1 << 30;

/// The four planes of a record's logprobs. The logprobs of several answers follow one another.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Planes([Vec<u8>; 4]);

impl Planes {
    pub(crate) fn clear(&mut self) {
        self.0.iter_mut().for_each(Vec::clear);
    }

    pub(crate) fn put(&mut self, logprobs: &[Option<Logprob>]) {
        for logprob in logprobs {
            // No logprob is NaN, so NaN encodes a missing logprob.
            let bytes = logprob.map_or(f32::NAN, Logprob::get).to_le_bytes();
            self.0.iter_mut().zip(bytes).for_each(|(plane, byte)| plane.push(byte));
        }
    }

    /// Appends the length of the planes, and then each plane with its packed length.
    pub(crate) fn pack(
        &self,
        compressor: &mut zstd::bulk::Compressor<'_>,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let [first, ..] = &self.0;
        out.put_number(first.len() as u64);
        for plane in &self.0 {
            let compressed = match plane.len() {
                ..COMPRESSED_FROM => None,
                _ => Some(compressor.compress(plane)?).filter(|compressed| compressed.len() < plane.len()),
            };
            // The reader takes a plane of full length as not compressed.
            let packed = compressed.as_deref().unwrap_or(plane);
            out.put_number(packed.len() as u64);
            out.extend_from_slice(packed);
        }
        Ok(())
    }

    /// Reads planes. Returns `None` if the bytes are malformed.
    pub(crate) fn read(numbers: &mut Numbers<'_>) -> Option<Self> {
        let length = usize::try_from(numbers.number().filter(|&length| length <= LONGEST)?).ok()?;
        let mut plane = || {
            let packed = numbers.number()?;
            let packed = numbers.bytes(packed)?;
            if packed.len() == length {
                return Some(packed.to_vec());
            }
            zstd::bulk::decompress(packed, length).ok().filter(|plane| plane.len() == length)
        };
        Some(Self([plane()?, plane()?, plane()?, plane()?]))
    }

    /// Returns a reader that takes the logprobs in the order in which they were put.
    pub(crate) fn taking(&self) -> Taking<'_> {
        let [a, b, c, d] = &self.0;
        Taking([a, b, c, d])
    }
}

/// Takes logprobs out of their planes.
pub(crate) struct Taking<'a>([&'a [u8]; 4]);

impl Taking<'_> {
    /// Reads the next `count` logprobs, or returns `None` if fewer remain.
    pub(crate) fn take(&mut self, count: usize) -> Option<Vec<Option<Logprob>>> {
        let mut next = [&[][..]; 4];
        for (next, plane) in next.iter_mut().zip(&mut self.0) {
            (*next, *plane) = plane.split_at_checked(count)?;
        }
        Some(of_planes(next).collect())
    }
}

/// Reads the logprobs of format 1: one float after another.
pub(crate) fn of_bytes(bytes: &[u8]) -> Vec<Option<Logprob>> {
    let (logprobs, _) = bytes.as_chunks::<4>();
    logprobs.iter().map(|&bytes| logprob(bytes)).collect()
}

/// Reads the logprobs of format 2: the four planes one after another.
pub(crate) fn of_joined_planes(bytes: &[u8]) -> Vec<Option<Logprob>> {
    // `chunks_exact` panics if the size of a chunk is 0.
    let mut planes = bytes.chunks_exact((bytes.len() / 4).max(1));
    of_planes([(); 4].map(|()| planes.next().unwrap_or_default())).collect()
}

fn of_planes([a, b, c, d]: [&[u8]; 4]) -> impl Iterator<Item = Option<Logprob>> {
    a.iter().zip(b).zip(c.iter().zip(d)).map(|((&a, &b), (&c, &d))| logprob([a, b, c, d]))
}

fn logprob(bytes: [u8; 4]) -> Option<Logprob> {
    Logprob::try_from(f32::from_le_bytes(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(planes: &Planes) -> Vec<u8> {
        let mut out = Vec::new();
        planes.pack(&mut zstd::bulk::Compressor::new(1).unwrap(), &mut out).unwrap();
        out
    }

    proptest! {
        #[test]
        fn what_is_put_is_taken(
            answers in prop::collection::vec(
                prop::collection::vec(prop::option::of(prop_oneof![Just(0.0_f32), -9.0..0.0_f32]), 0..400),
                0..4,
            ),
        ) {
            let of = |answer: &Vec<Option<f32>>| -> Vec<_> {
                answer.iter().map(|&value| Logprob::try_from(value?).ok()).collect()
            };
            let answers: Vec<_> = answers.iter().map(of).collect();
            let mut planes = Planes::default();
            answers.iter().for_each(|answer| planes.put(answer));
            let bytes = packed(&planes);
            let mut numbers = Numbers::of(&bytes);
            let read = Planes::read(&mut numbers).unwrap();
            prop_assert!(numbers.is_empty());
            let mut taking = read.taking();
            for answer in answers {
                prop_assert_eq!(taking.take(answer.len()).unwrap(), answer);
            }
            prop_assert_eq!(taking.take(1), None);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), cut in any::<prop::sample::Index>()) {
            let _ = Planes::read(&mut Numbers::of(&bytes));
            let mut planes = Planes::default();
            planes.put(&[Logprob::try_from(-1.0).ok(); 150]);
            let sound = packed(&planes);
            prop_assert_eq!(Planes::read(&mut Numbers::of(&sound[..cut.index(sound.len())])), None);
        }
    }
}

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
/// Planes with more bytes are always compressed, because they gain from small differences in frequency too.
const JUDGED_UP_TO: usize = 4096;
/// A plane is noise if fewer than one of so many pairs of its bytes are equal. Of random bytes it is one of 256.
const EVEN: u64 = 64;
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

    /// Appends the length of the planes, and then each plane with its packed length. `compressed` is a buffer.
    pub(crate) fn pack(
        &self,
        compressor: &mut zstd::bulk::Compressor<'_>,
        compressed: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let [first, ..] = &self.0;
        out.put_number(first.len() as u64);
        for plane in &self.0 {
            let mut packed = plane;
            if plane.len() >= COMPRESSED_FROM && !is_noise(plane) {
                compressed.clear();
                compressed.reserve(zstd::zstd_safe::compress_bound(plane.len()));
                compressor.compress_to_buffer(plane, compressed)?;
                // The reader takes a plane of full length as not compressed.
                if compressed.len() < plane.len() {
                    packed = compressed;
                }
            }
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

/// Whether the bytes of a short plane are so evenly distributed that its compression would only cost time.
fn is_noise(plane: &[u8]) -> bool {
    if plane.len() > JUDGED_UP_TO {
        return false;
    }
    let mut counts = [0_u32; 256];
    for &byte in plane {
        if let Some(count) = counts.get_mut(usize::from(byte)) {
            *count += 1;
        }
    }
    // Each pair of positions with equal bytes counts, in both orders.
    let equal: u64 = counts.iter().map(|&count| u64::from(count) * u64::from(count.saturating_sub(1))).sum();
    let pairs = (plane.len() * plane.len()) as u64;
    equal * EVEN < pairs
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
        planes.pack(&mut zstd::bulk::Compressor::new(1).unwrap(), &mut Vec::new(), &mut out).unwrap();
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
        fn noise_is_even_and_words_are_not(bytes in prop::collection::vec(any::<u8>(), 300..600)) {
            prop_assert!(is_noise(&bytes));
            prop_assert!(!is_noise(&bytes.iter().map(|byte| byte % 16).collect::<Vec<_>>()));
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

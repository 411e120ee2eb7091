//! The frame of a record in a segment: its length, its checksums, and its content.
//!
//! A valid header gives the length of the record. This distinguishes damage from a record that a dying process left
//! half written. Damage costs one record, because the reader finds the next record with valid checksums.

use std::io::{self, Read};

/// The length of a header: the length of the content, its CRC-32, and the CRC-32 of these two, 4 bytes each.
pub(crate) const HEADER: usize = 12;

/// Appends a record. `write` appends the content.
pub(crate) fn frame<E>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    if let Err(error) = write(out) {
        // A failed record leaves no bytes in the buffer of the batch.
        out.truncate(start);
        return Err(error);
    }
    let content = out.get(start + HEADER..).unwrap_or_default();
    let header = header(content);
    if let Some(place) = out.get_mut(start..start + HEADER) {
        place.copy_from_slice(&header);
    }
    Ok(())
}

fn header(content: &[u8]) -> [u8; HEADER] {
    // The cast loses nothing: answers are limited to 1 GiB of JSON, so a record is far below 4 GiB.
    let length = (content.len() as u32).to_le_bytes();
    let [a, b, c, d] = length;
    let [e, f, g, h] = crc32fast::hash(content).to_le_bytes();
    let [i, j, k, l] = crc32fast::hash(&[a, b, c, d, e, f, g, h]).to_le_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, l]
}

/// Returns the length and the checksum of the content, or `None` if the header is not valid.
pub(crate) fn read_header(header: &[u8]) -> Option<(usize, u32)> {
    let &[a, b, c, d, e, f, g, h, i, j, k, l] = header.first_chunk::<HEADER>()?;
    let is_sound = crc32fast::hash(&[a, b, c, d, e, f, g, h]) == u32::from_le_bytes([i, j, k, l]);
    is_sound.then(|| (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h])))
}

/// The next item of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A valid record. Its content is in the buffer.
    Record,
    /// The end of the file.
    End,
    /// The file ends within a record.
    TornEnd,
    /// Bytes that are not a valid record, with a description.
    Damage(String),
}

/// Reads the records of a segment in order.
pub(crate) struct Records<R> {
    file: R,
    /// The offset of the next record from the beginning of the file.
    at: u64,
    /// Bytes behind damage that are already read. They are parsed before more of the file is read.
    rest: Option<io::Cursor<Vec<u8>>>,
}

impl<R: Read> Records<R> {
    /// Continues in a file that is read up to `at`.
    pub(crate) fn new(file: R, at: u64) -> Self {
        Self { file, at, rest: None }
    }

    /// The offset of the next record.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// Replaces `content` with the content of the next record.
    pub(crate) fn next(&mut self, content: &mut Vec<u8>) -> io::Result<Next> {
        content.clear();
        let mut header = [0; HEADER];
        let came = self.fill(&mut header)?;
        let header = header.get(..came).unwrap_or_default();
        if came == 0 {
            return Ok(Next::End);
        }
        let Some((length, checksum)) = read_header(header) else {
            // Fewer bytes than a header are the beginning of a record that was half written.
            return if came < HEADER { Ok(Next::TornEnd) } else { self.skip_damage(header) };
        };
        // The buffer grows as bytes arrive, so that a large length in a torn record allocates little.
        content.reserve(length.min(1 << 20));
        let came = match &mut self.rest {
            Some(rest) => rest.take(length as u64).read_to_end(content)?,
            None => (&mut self.file).take(length as u64).read_to_end(content)?,
        };
        if came < length {
            return Ok(Next::TornEnd);
        }
        // The header is valid, so the next record begins here even if the content is damaged.
        self.at += (HEADER + length) as u64;
        if crc32fast::hash(content) == checksum {
            return Ok(Next::Record);
        }
        Ok(Next::Damage(format!("a record of {length} bytes is not what was written")))
    }

    /// Skips to the next valid record.
    fn skip_damage(&mut self, header: &[u8]) -> io::Result<Next> {
        let mut rest = header.to_vec();
        match &mut self.rest {
            Some(more) => more.read_to_end(&mut rest)?,
            None => self.file.read_to_end(&mut rest)?,
        };
        if rest.iter().all(|&byte| byte == 0) {
            // A machine that dies can leave a file longer than its data, filled with zeros.
            return Ok(Next::TornEnd);
        }
        // Every offset is tested, because the damaged header does not give the length.
        let sound = (1..rest.len()).find(|&at| rest.get(at..).is_some_and(is_sound)).unwrap_or(rest.len());
        self.at += sound as u64;
        rest.drain(..sound);
        self.rest = Some(io::Cursor::new(rest));
        Ok(Next::Damage(format!("{sound} bytes are no record")))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut came = 0;
        while let Some(place) = buffer.get_mut(came..).filter(|place| !place.is_empty()) {
            let read = match &mut self.rest {
                Some(rest) => rest.read(place)?,
                None => self.file.read(place)?,
            };
            if read == 0 {
                break;
            }
            came += read;
        }
        Ok(came)
    }
}

fn is_sound(bytes: &[u8]) -> bool {
    let Some((length, checksum)) = read_header(bytes) else { return false };
    bytes.get(HEADER..HEADER + length).is_some_and(|content| crc32fast::hash(content) == checksum)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn written(contents: &[Vec<u8>]) -> Vec<u8> {
        let mut file = Vec::new();
        for content in contents {
            let write = |out: &mut Vec<u8>| {
                out.extend_from_slice(content);
                Ok::<_, Infallible>(())
            };
            frame(&mut file, write).unwrap();
        }
        file
    }

    fn read(file: &[u8]) -> (Vec<Vec<u8>>, Vec<Next>) {
        let mut records = Records::new(file, 0);
        let (mut contents, mut others) = (Vec::new(), Vec::new());
        loop {
            let mut content = Vec::new();
            match records.next(&mut content).unwrap() {
                Next::Record => contents.push(content),
                Next::End => break,
                Next::TornEnd => {
                    others.push(Next::TornEnd);
                    break;
                }
                damage => others.push(damage),
            }
        }
        (contents, others)
    }

    fn contents() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(contents in contents()) {
            prop_assert_eq!(read(&written(&contents)), (contents, vec![]));
        }

        #[test]
        fn a_cut_file_has_every_record_in_front_of_the_cut(contents in contents(), cut in any::<prop::sample::Index>()) {
            let file = written(&contents);
            let cut = cut.index(file.len());
            let (found, others) = read(&file[..cut]);
            let whole = (0..=contents.len()).rev().find(|&n| written(&contents[..n]).len() <= cut).unwrap();
            prop_assert_eq!(&found, &contents[..whole]);
            prop_assert_eq!(others.is_empty(), written(&contents[..whole]).len() == cut);
        }

        #[test]
        fn a_changed_byte_costs_one_record(contents in contents(), at in any::<prop::sample::Index>(), by in 1..=255_u8) {
            let mut file = written(&contents);
            let at = at.index(file.len());
            file[at] ^= by;
            let (found, others) = read(&file);
            prop_assert_eq!(found.len(), contents.len() - 1);
            prop_assert_eq!(others.len(), 1);
        }

        #[test]
        fn arbitrary_bytes_never_panic(file in prop::collection::vec(any::<u8>(), 0..80)) {
            read(&file);
        }
    }

    #[test]
    fn fuzz_segment() {
        rolltap_testing::fuzz!("segment", |bytes| {
            read(bytes);
            // Records before foreign bytes are read. The bytes as the content of a record come back.
            let first = vec![b"first".to_vec(), bytes.to_vec()];
            let (contents, others) = read(&[written(&first), bytes.to_vec()].concat());
            assert!(contents.starts_with(&first), "{others:?}");
        });
    }
}

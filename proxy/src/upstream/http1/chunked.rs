//! Decodes the chunked transfer coding (RFC 9112 §7.1).

/// The maximum length in bytes of a line: the size of a chunk with its extensions, or all trailers together.
const LONGEST_LINE: usize = 16 << 10;

/// Bytes that do not follow the chunked coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid chunk: {0}")]
pub(crate) struct InvalidChunk(&'static str);

/// Decodes a body that arrives in pieces.
#[derive(Debug, Default)]
pub(super) struct ChunkDecoder {
    state: State,
    /// The length of the current line, or of all trailers.
    line: usize,
}

/// The next expected byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The first digit of a size.
    #[default]
    FirstDigit,
    /// Another digit of a size that is this so far, or what follows it.
    Size(u64),
    /// A byte of an extension, which is ignored.
    Extension(u64),
    /// The LF after a size.
    SizeLf(u64),
    /// Data, of which this many bytes are left.
    Data(u64),
    DataCr,
    DataLf,
    /// The first byte of a trailer, or the CR of the blank line after them.
    TrailerStart,
    /// A byte of a trailer, which is ignored.
    Trailer,
    TrailerLf,
    LastLf,
    Done,
}

impl ChunkDecoder {
    /// Whether the last chunk and its trailers have arrived.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Appends the data of `input` to `data`. Returns the number of bytes up to the end of the body, or of the input.
    pub(super) fn decode(&mut self, input: &[u8], data: &mut Vec<u8>) -> Result<usize, InvalidChunk> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            match self.state {
                State::Done => break,
                State::Data(left) => {
                    let rest = input.get(at..).unwrap_or_default();
                    let taken = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    data.extend_from_slice(rest.get(..taken).unwrap_or_default());
                    at += taken;
                    self.state = match left - taken as u64 {
                        0 => State::DataCr,
                        left => State::Data(left),
                    };
                }
                _ => {
                    self.state = self.after(byte)?;
                    at += 1;
                }
            }
        }
        Ok(at)
    }

    /// Returns the state after a byte that is no data.
    fn after(&mut self, byte: u8) -> Result<State, InvalidChunk> {
        self.line += 1;
        if self.line > LONGEST_LINE {
            return Err(InvalidChunk("a line is too long"));
        }
        Ok(match (self.state, byte) {
            (State::FirstDigit, _) => State::Size(digit(byte).ok_or(InvalidChunk("a size is expected"))?),
            (State::Size(size), b'\r') | (State::Extension(size), b'\r') => State::SizeLf(size),
            (State::Size(size), b';' | b' ' | b'\t') => State::Extension(size),
            (State::Size(size), _) => {
                let digit = digit(byte).ok_or(InvalidChunk("the size is no hexadecimal number"))?;
                let size = size.checked_mul(16).ok_or(InvalidChunk("the size is too large"))?;
                State::Size(size + digit)
            }
            (State::SizeLf(0), b'\n') => State::TrailerStart,
            (State::SizeLf(size), b'\n') => State::Data(size),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => {
                self.line = 0;
                State::FirstDigit
            }
            (State::TrailerStart, b'\r') => State::LastLf,
            (State::Trailer, b'\r') => State::TrailerLf,
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::LastLf, b'\n') => State::Done,
            (State::Extension(_) | State::Trailer | State::TrailerStart, b'\n') => {
                return Err(InvalidChunk("a line ends without CR"));
            }
            (State::Extension(size), _) => State::Extension(size),
            (State::Trailer | State::TrailerStart, _) => State::Trailer,
            (State::DataCr, _) => return Err(InvalidChunk("it is longer than its size")),
            _ => return Err(InvalidChunk("a line end is expected")),
        })
    }
}

fn digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(pieces: &[&[u8]]) -> Result<(Vec<u8>, bool), InvalidChunk> {
        let (mut decoder, mut data) = (ChunkDecoder::default(), Vec::new());
        for piece in pieces {
            decoder.decode(piece, &mut data)?;
        }
        Ok((data, decoder.is_done()))
    }

    #[test]
    fn extensions_and_trailers_are_ignored() {
        let body = b"3;a=b\r\nabc\r\n1 \r\nd\r\n0;e\r\nx: 1\r\ny: 2\r\n\r\n";
        assert_eq!(decoded(&[body]), Ok((b"abcd".to_vec(), true)));
    }

    #[test]
    fn bytes_after_the_end_are_left() {
        let (mut decoder, mut data) = (ChunkDecoder::default(), Vec::new());
        assert_eq!(decoder.decode(b"1\r\na\r\n0\r\n\r\nHTTP", &mut data), Ok(11));
        assert_eq!(decoder.decode(b"HTTP", &mut data), Ok(0));
    }

    #[test]
    fn bytes_that_are_no_chunks_are_errors() {
        for body in [
            &b"zz\r\n"[..],
            b"\r\n",
            b"1\n",
            b"1\r\nab",
            b"1\r\na\n",
            b"10000000000000000\r\n",
            b"1;x\ny",
            b"0\r\nx: 1\ny: 2",
            b"0\r\n\rx",
        ] {
            assert!(decoded(&[body]).is_err(), "{body:?}");
        }
        let long = [&b"1;"[..], &[b'x'; LONGEST_LINE]].concat();
        assert!(decoded(&[&long]).is_err());
    }

    proptest! {
        #[test]
        fn the_cuts_of_the_stream_do_not_matter(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                body.extend_from_slice(chunk);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"0\r\n\r\n");
            let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
            at.extend([0, body.len()]);
            at.sort_unstable();
            let pieces: Vec<_> = at.windows(2).map(|cut| &body[cut[0]..cut[1]]).collect();
            prop_assert_eq!(decoded(&pieces), Ok((chunks.concat(), true)));
        }

        #[test]
        fn arbitrary_bytes_never_panic(body in prop::collection::vec(prop::sample::select(&b"019aF;\r\n x\xff"[..]), 0..60)) {
            let _ = decoded(&[&body]);
        }
    }

    #[test]
    fn fuzz_chunked() {
        rolltap_testing::fuzz!("chunked", |body| {
            // The position of the end of the body, its data, and whether it is complete.
            let read = |pieces: &[&[u8]]| {
                let (mut decoder, mut data, mut used) = (ChunkDecoder::default(), Vec::new(), 0);
                for piece in pieces {
                    used += decoder.decode(piece, &mut data)?;
                }
                Ok::<_, InvalidChunk>((used, data, decoder.is_done()))
            };
            let whole = read(&[body]);
            for pieces in rolltap_testing::fuzz::cuts(body) {
                assert_eq!(read(&pieces), whole);
            }
            if let Ok((used, data, is_done)) = whole {
                assert!(data.len() <= used && (is_done || used == body.len()));
            }
        });
    }
}

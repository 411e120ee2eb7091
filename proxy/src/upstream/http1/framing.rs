//! Where the body of an answer ends (RFC 9112 §6.3).

use http::{HeaderMap, StatusCode, header};

use super::chunked::{ChunkDecoder, InvalidChunk};
use super::response_head::InvalidHead;

/// How the end of a body is found.
#[derive(Debug)]
pub(super) enum Framing {
    /// This many bytes are left.
    Length(u64),
    Chunked(ChunkDecoder),
    /// The body ends with the connection.
    UntilClose,
}

impl Framing {
    /// Reads the framing of an answer to a request that is no `HEAD`.
    pub(super) fn of(status: StatusCode, headers: &HeaderMap) -> Result<Self, InvalidHead> {
        if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return Ok(Self::Length(0));
        }
        // The transfer coding overrides the length, which a sender must not add to it.
        if let Some(coding) = headers.get_all(header::TRANSFER_ENCODING).iter().next_back() {
            let last = coding.as_bytes().rsplit(|&byte| byte == b',').next().unwrap_or_default();
            let is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
            return Ok(if is_chunked { Self::Chunked(ChunkDecoder::default()) } else { Self::UntilClose });
        }
        let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
        let Some(length) = lengths.next() else { return Ok(Self::UntilClose) };
        let all_equal = lengths.all(|other| other == length);
        let digits = std::str::from_utf8(length.as_bytes()).ok().filter(|text| !text.starts_with('+'));
        match digits.and_then(|digits| digits.trim().parse().ok()) {
            Some(length) if all_equal => Ok(Self::Length(length)),
            _ => Err(InvalidHead("its content-length is no single number")),
        }
    }

    /// Whether the whole body has arrived. Only the end of the connection ends a body of the third kind.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(decoder) => decoder.is_done(),
            Self::UntilClose => false,
        }
    }

    /// Appends the data of `input` to `data`. Returns the number of bytes up to the end of the body, or of the input.
    pub(super) fn decode(&mut self, input: &[u8], data: &mut Vec<u8>) -> Result<usize, InvalidChunk> {
        match self {
            Self::Length(left) => {
                let taken = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                data.extend_from_slice(input.get(..taken).unwrap_or_default());
                *left -= taken as u64;
                Ok(taken)
            }
            Self::Chunked(decoder) => decoder.decode(input, data),
            Self::UntilClose => {
                data.extend_from_slice(input);
                Ok(input.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing(headers: &[(&'static str, &'static str)]) -> Result<Framing, InvalidHead> {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        Framing::of(StatusCode::OK, &headers.collect())
    }

    #[test]
    fn the_coding_overrides_the_length() {
        let both = framing(&[("content-length", "5"), ("transfer-encoding", "gzip, Chunked")]);
        assert!(matches!(both, Ok(Framing::Chunked(_))));
        assert!(matches!(framing(&[("transfer-encoding", "gzip")]), Ok(Framing::UntilClose)));
        assert!(matches!(framing(&[("content-length", "5")]), Ok(Framing::Length(5))));
        assert!(matches!(framing(&[]), Ok(Framing::UntilClose)));
        let empty = Framing::of(StatusCode::NO_CONTENT, &HeaderMap::new());
        assert!(empty.unwrap().is_done());
    }

    #[test]
    fn a_length_is_one_number() {
        for value in ["", "x", "-1", "+1", "1, 2", "99999999999999999999"] {
            assert!(framing(&[("content-length", value)]).is_err(), "{value}");
        }
        let mut headers = HeaderMap::new();
        headers.append(header::CONTENT_LENGTH, "5".parse().unwrap());
        headers.append(header::CONTENT_LENGTH, "5".parse().unwrap());
        assert!(matches!(Framing::of(StatusCode::OK, &headers), Ok(Framing::Length(5))));
        headers.append(header::CONTENT_LENGTH, "6".parse().unwrap());
        assert!(Framing::of(StatusCode::OK, &headers).is_err());
    }
}

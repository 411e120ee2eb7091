//! The messages of a shard's log.
//!
//! A message begins with a head of 30 or more bytes: the format (1), the kind, the id of the writer (16 bytes) and the
//! number that the writer gave the message (8 bytes). Numbers are big-endian. The rest depends on the kind.

mod order;

use bytes::{Buf, BufMut, Bytes, BytesMut};

pub(crate) use self::order::LogOrder;

/// The version of the format.
const FORMAT: u8 = 1;
const KIND_EPOCH: u8 = 1;
const KIND_APPEND: u8 = 2;
const KIND_REMOVE: u8 = 3;
/// The bytes before the part that depends on the kind.
const HEAD: usize = 26;
/// The bytes of the longest head.
pub(crate) const LONGEST_HEAD: usize = HEAD + 12;

/// A node that held a lease, in one epoch. A node that holds the lease again has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterId(pub(crate) u128);

/// One message of a shard's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogMessage {
    pub(crate) writer: WriterId,
    /// 0 for the first message of the writer, and one more for each further message.
    pub(crate) number: u64,
    pub(crate) entry: LogEntry,
}

/// A change of a shard's segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEntry {
    /// The first message of a writer. Messages of earlier writers cannot follow it.
    Epoch(u64),
    /// The segment has these bytes at the offset. Whatever it had there before is replaced.
    Append {
        /// The number of the segment.
        segment: u32,
        /// The position of the bytes in the segment.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// The segment is removed, because its retention is over.
    Remove {
        /// The number of the segment.
        segment: u32,
    },
}

/// A message of a shard's log that this version cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignMessage {
    /// The message has another format.
    #[error("its format is {0}, and this rolltap reads format {FORMAT}")]
    Format(u8),
    /// The kind is unknown.
    #[error("its kind {0} is unknown to this rolltap")]
    Kind(u8),
    /// The message ends early.
    #[error("it has {0} bytes, which is too short")]
    Short(usize),
}

impl WriterId {
    pub(crate) fn new() -> Self {
        Self(uuid::Uuid::now_v7().as_u128())
    }
}

impl LogMessage {
    pub(crate) fn encode(&self) -> Bytes {
        let (kind, more) = match &self.entry {
            LogEntry::Epoch(_) => (KIND_EPOCH, 0),
            LogEntry::Append { bytes, .. } => (KIND_APPEND, bytes.len()),
            LogEntry::Remove { .. } => (KIND_REMOVE, 0),
        };
        let mut encoded = BytesMut::with_capacity(LONGEST_HEAD + more);
        encoded.put_u8(FORMAT);
        encoded.put_u8(kind);
        encoded.put_u128(self.writer.0);
        encoded.put_u64(self.number);
        match &self.entry {
            LogEntry::Epoch(epoch) => encoded.put_u64(*epoch),
            LogEntry::Append { segment, offset, bytes } => {
                encoded.put_u32(*segment);
                encoded.put_u64(*offset);
                encoded.put_slice(bytes);
            }
            LogEntry::Remove { segment } => encoded.put_u32(*segment),
        }
        encoded.freeze()
    }

    pub(crate) fn decode(mut encoded: Bytes) -> Result<Self, ForeignMessage> {
        let short = ForeignMessage::Short(encoded.len());
        match encoded.first() {
            Some(&FORMAT) => {}
            Some(&other) => return Err(ForeignMessage::Format(other)),
            None => return Err(short),
        }
        let read = read_head(&mut encoded).ok_or(short.clone())?;
        let (kind, writer, number) = read;
        let entry = match kind {
            KIND_EPOCH => encoded.try_get_u64().ok().map(LogEntry::Epoch),
            KIND_APPEND => read_append(&mut encoded),
            KIND_REMOVE => encoded.try_get_u32().ok().map(|segment| LogEntry::Remove { segment }),
            other => return Err(ForeignMessage::Kind(other)),
        };
        Ok(Self { writer, number, entry: entry.ok_or(short)? })
    }
}

fn read_head(encoded: &mut Bytes) -> Option<(u8, WriterId, u64)> {
    encoded.try_get_u8().ok()?;
    let kind = encoded.try_get_u8().ok()?;
    let writer = WriterId(encoded.try_get_u128().ok()?);
    Some((kind, writer, encoded.try_get_u64().ok()?))
}

fn read_append(encoded: &mut Bytes) -> Option<LogEntry> {
    let segment = encoded.try_get_u32().ok()?;
    let offset = encoded.try_get_u64().ok()?;
    Some(LogEntry::Append { segment, offset, bytes: std::mem::take(encoded) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries() -> impl Strategy<Value = LogEntry> {
        let append = (any::<u32>(), any::<u64>(), any::<Vec<u8>>())
            .prop_map(|(segment, offset, bytes)| LogEntry::Append { segment, offset, bytes: bytes.into() });
        prop_oneof![
            any::<u64>().prop_map(LogEntry::Epoch),
            append,
            any::<u32>().prop_map(|segment| LogEntry::Remove { segment }),
        ]
    }

    proptest! {
        #[test]
        fn a_message_survives_encoding(writer: u128, number: u64, entry in entries()) {
            let message = LogMessage { writer: WriterId(writer), number, entry };
            prop_assert_eq!(LogMessage::decode(message.encode()), Ok(message));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = LogMessage::decode(bytes.into());
        }

        #[test]
        fn a_cut_head_is_refused(writer: u128, entry in entries(), cut in 0_usize..HEAD) {
            let encoded = LogMessage { writer: WriterId(writer), number: 0, entry }.encode();
            prop_assert_eq!(LogMessage::decode(encoded.slice(..cut)), Err(ForeignMessage::Short(cut)));
        }
    }

    #[test]
    fn another_format_or_kind_is_named() {
        let other = |bytes: &'static [u8]| LogMessage::decode(Bytes::from_static(bytes)).unwrap_err();
        assert_eq!(other(b"\x02"), ForeignMessage::Format(2));
        assert_eq!(other(b"{\"a\":1}").to_string(), "its format is 123, and this rolltap reads format 1");
        assert_eq!(
            other(&[1, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            ForeignMessage::Kind(9)
        );
    }
}

//! The feed of one shard, read line by line.

use std::io;

use axum::body::{Body, Bytes};
use futures_util::{Stream, TryStreamExt};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};
use tokio_util::io::StreamReader;

/// The beginning of each line, before the cursor of the shard.
const BEFORE_CURSOR: &[u8] = br#"{"cursor":""#;

/// A line of the feed of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FeedLine {
    /// The line as the shard wrote it, with its end.
    text: Vec<u8>,
    /// The length of the cursor in it.
    cursor_length: usize,
    pub(super) completed_at: Timestamp,
    /// The number of lines of its group that follow.
    pub(super) remaining: u64,
}

/// The members of a line that decide about its place among the lines of other shards.
#[derive(Deserialize)]
struct Place {
    completed_at: Timestamp,
    #[serde(default)]
    group_remaining: Option<u64>,
}

impl FeedLine {
    /// Reads a line with its end.
    ///
    /// # Errors
    /// The line is incomplete, or is no line of a feed.
    fn parse(text: Vec<u8>) -> io::Result<Self> {
        let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason);
        if !text.ends_with(b"\n") {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let from_cursor =
            text.strip_prefix(BEFORE_CURSOR).ok_or_else(|| invalid("a line begins without a cursor"))?;
        let length = from_cursor.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'-');
        let cursor_length = length.filter(|length| from_cursor.get(*length) == Some(&b'"'));
        let cursor_length =
            cursor_length.ok_or_else(|| invalid("the cursor of a line is not one of a shard"))?;
        let Place { completed_at, group_remaining } = serde_json::from_slice(&text)?;
        Ok(Self { text, cursor_length, completed_at, remaining: group_remaining.unwrap_or_default() })
    }

    /// The cursor of the shard after this line.
    pub(super) fn cursor(&self) -> &str {
        let cursor = self.text.get(BEFORE_CURSOR.len()..BEFORE_CURSOR.len() + self.cursor_length);
        // The cursor has digits and `-` only.
        cursor.and_then(|cursor| std::str::from_utf8(cursor).ok()).unwrap_or_default()
    }

    /// Returns the line with the cursor of the cluster.
    pub(super) fn with_cursor(&self, cursor: &str) -> Bytes {
        let rest = self.text.get(BEFORE_CURSOR.len() + self.cursor_length..).unwrap_or_default();
        [BEFORE_CURSOR, cursor.as_bytes(), rest].concat().into()
    }
}

/// Reads the lines of an answer of a shard.
pub(super) struct ShardLines(Box<dyn AsyncBufRead + Send + Unpin>);

impl ShardLines {
    pub(super) fn new(body: Body) -> Self {
        let data = Box::pin(body.into_data_stream().map_err(io::Error::other));
        Self(Box::new(reader(data)))
    }

    /// Returns the next line. `None` at the end of the answer.
    ///
    /// # Errors
    /// The answer breaks off, or a line is no line of a feed.
    pub(super) async fn next(&mut self) -> io::Result<Option<FeedLine>> {
        let mut text = Vec::new();
        match self.0.read_until(b'\n', &mut text).await? {
            0 => Ok(None),
            _ => FeedLine::parse(text).map(Some),
        }
    }
}

fn reader<S>(data: S) -> StreamReader<S, Bytes>
where
    S: Stream<Item = io::Result<Bytes>>,
{
    StreamReader::new(data)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = "{\"cursor\":\"20-17\",\"trial_id\":\"a\",\"group_remaining\":3,\"completed_at\":\"2026-01-02T03:04:05Z\",\"rows\":[]}\n";

    #[tokio::test]
    async fn lines_come_one_by_one_with_their_place() {
        let mut lines = ShardLines::new(Body::from(format!("{LINE}{LINE}")));
        let line = lines.next().await.unwrap().unwrap();
        assert_eq!((line.cursor(), line.remaining), ("20-17", 3));
        let edited = line.with_cursor(".20-17.~1");
        assert_eq!(edited, LINE.replace("20-17", ".20-17.~1").as_bytes());
        assert!(lines.next().await.unwrap().is_some());
        assert_eq!(lines.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_an_error() {
        let mut lines = ShardLines::new(Body::from(&LINE[..LINE.len() - 1]));
        assert_eq!(lines.next().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        for foreign in ["{}\n", "{\"cursor\":17}\n", "{\"cursor\":\"a\"}\n", "\n"] {
            let error = ShardLines::new(Body::from(foreign)).next().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{foreign}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(text in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = FeedLine::parse(text.clone());
            let line = [BEFORE_CURSOR, &text, b"\n"].concat();
            if let Ok(line) = FeedLine::parse(line) {
                let _ = line.with_cursor(line.cursor());
            }
        }
    }
}

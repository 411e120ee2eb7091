//! The position of a reader in the feed of a cluster.

use std::fmt;

use crate::common::shard::ShardCount;

/// The last trial that a reader has of each shard. For the reader it is opaque text.
///
/// It is written as the cursors of the shards with `.` between them, such as `17..9` or `20-17.3-3.`. A shard without a
/// cursor has given no trial. If the last line belongs to a group with further lines, `~` and the number of its shard follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterCursor {
    /// By number of the shard. Empty text before the first trial of the shard.
    shards: Vec<String>,
    /// The shard that has the remaining lines of the group of the last line.
    within: Option<u32>,
}

/// Text that is no cursor of this cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no cursor of a cluster with {shards} shards: give `after` the `cursor` of the last line that you keep, as \
     it is, or leave it out to begin with the first trial"
)]
pub(super) struct InvalidCursor {
    text: String,
    shards: u32,
}

impl ClusterCursor {
    /// Returns the cursor before the first trial of each shard.
    pub(super) fn begin(count: ShardCount) -> Self {
        Self { shards: (0..count.get()).map(|_| String::new()).collect(), within: None }
    }

    /// Parses the cursor of a reader. The shards check their own parts.
    pub(super) fn parse(text: &str, count: ShardCount) -> Result<Self, InvalidCursor> {
        let invalid = || InvalidCursor { text: text.to_owned(), shards: count.get() };
        let (shards, within) = match text.split_once('~') {
            None => (text, None),
            Some((shards, within)) => (shards, Some(number(within).ok_or_else(invalid)?)),
        };
        let shards: Vec<String> = shards.split('.').map(str::to_owned).collect();
        let is_part = |part: &String| part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        let is_valid = shards.len() == count.get() as usize
            && shards.iter().all(is_part)
            && within.is_none_or(|shard| shard < count.get());
        is_valid.then_some(Self { shards, within }).ok_or_else(invalid)
    }

    /// Returns the cursor of one shard. `None` before its first trial.
    pub(super) fn of(&self, shard: u32) -> Option<&str> {
        self.shards.get(shard as usize).map(String::as_str).filter(|cursor| !cursor.is_empty())
    }

    /// Returns the shard that has the remaining lines of a group.
    pub(super) fn within(&self) -> Option<u32> {
        self.within
    }

    /// Advances one shard to this cursor of its own. `remaining` is the number of further lines of the group.
    pub(super) fn advance(&mut self, shard: u32, cursor: &str, remaining: u64) {
        if let Some(of_shard) = self.shards.get_mut(shard as usize) {
            cursor.clone_into(of_shard);
        }
        self.within = (remaining > 0).then_some(shard);
    }
}

/// Only digits are valid: `parse` alone would also accept a sign.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

impl fmt::Display for ClusterCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shards.join("."))?;
        self.within.map_or(Ok(()), |shard| write!(f, "~{shard}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cursor_has_a_part_for_each_shard() {
        let count = ShardCount::new(3);
        let mut cursor = ClusterCursor::begin(count);
        assert_eq!(cursor.to_string(), "..");
        cursor.advance(1, "20-17", 2);
        assert_eq!(cursor.to_string(), ".20-17.~1");
        cursor.advance(2, "3-3", 0);
        assert_eq!(
            (cursor.to_string(), cursor.of(1), cursor.of(0)),
            (".20-17.3-3".to_owned(), Some("20-17"), None)
        );
        for wrong in ["", "17", "1.2", "1.2.3.4", "1.2.x", "1.2.3~", "1.2.3~3", "1.2.3~+1", "..~0~1"] {
            let error = ClusterCursor::parse(wrong, count).unwrap_err().to_string();
            assert!(error.contains("3 shards"), "{wrong}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(steps in prop::collection::vec((0_u32..4, any::<u64>(), 0_u64..3), 0..20)) {
            let count = ShardCount::new(4);
            let mut cursor = ClusterCursor::begin(count);
            for (shard, number, remaining) in steps {
                cursor.advance(shard, &number.to_string(), remaining);
            }
            prop_assert_eq!(ClusterCursor::parse(&cursor.to_string(), count), Ok(cursor));
        }

        #[test]
        fn arbitrary_text_never_panics(text in "[0-9.~-]{0,24}|.*", shards in 1_u32..5) {
            if let Ok(cursor) = ClusterCursor::parse(&text, ShardCount::new(shards)) {
                prop_assert!(text.len() >= cursor.to_string().len());
            }
        }
    }
}

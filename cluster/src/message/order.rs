//! Which messages of a log count.
//!
//! Many messages of a writer are in flight at once, and each expects the sequence number that follows from the one before it. If
//! another writer's message takes a place in between, the server refuses the first one and may store those after it. So the
//! sequence numbers alone do not order a log. These rules do, for readers and for the writer itself:
//!
//! - The first message of a writer (number 0) ends the time of the writer before it.
//! - Another message counts if it is of the current writer, and if its number follows that of the last message that counted.

use super::{LogMessage, WriterId};

/// The last message that counted. `None` before the first message of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogOrder(Option<(WriterId, u64)>);

impl LogOrder {
    /// The order after the message of this writer with this number.
    pub(crate) fn after(writer: WriterId, number: u64) -> Self {
        Self(Some((writer, number)))
    }

    /// The number of the last message that counted.
    pub(crate) fn number(self) -> u64 {
        self.0.map_or(0, |(_, number)| number)
    }

    /// Returns whether the next message of the log counts.
    pub(crate) fn admits(&mut self, message: &LogMessage) -> bool {
        let follows = match self.0 {
            Some((writer, number)) => message.writer == writer && message.number == number + 1,
            // The messages before it are stored elsewhere.
            None => true,
        };
        let counts = follows || message.number == 0;
        if counts {
            self.0 = Some((message.writer, message.number));
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::LogEntry;
    use super::*;

    fn message(writer: u128, number: u64) -> LogMessage {
        LogMessage { writer: WriterId(writer), number, entry: LogEntry::Remove { segment: 0 } }
    }

    fn counted(messages: &[(u128, u64)]) -> Vec<(u128, u64)> {
        let mut order = LogOrder::default();
        let counts = |(writer, number): &(u128, u64)| order.admits(&message(*writer, *number));
        messages.iter().copied().filter(counts).collect()
    }

    #[test]
    fn messages_that_took_a_foreign_place_do_not_count() {
        // The second writer took the place of message 2 of the first one, whose message 3 expected the place after it. That took
        // the place of message 1 of the second writer, which sends its messages again.
        let stored = [(1, 0), (1, 1), (2, 0), (1, 3), (2, 2), (2, 1), (2, 2), (2, 3)];
        assert_eq!(counted(&stored), [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]);
    }

    #[test]
    fn a_log_whose_beginning_is_elsewhere_begins_with_any_message() {
        assert_eq!(counted(&[(1, 7), (1, 8), (1, 10)]), [(1, 7), (1, 8)]);
    }

    proptest! {
        #[test]
        fn what_counts_is_the_messages_of_one_writer_after_the_other_without_a_gap(
            stored in prop::collection::vec((0_u128..3, 0_u64..5), 0..40),
        ) {
            let counted = counted(&stored);
            for pair in counted.windows(2) {
                let [(before, number), (writer, next)] = pair else { unreachable!() };
                prop_assert!(*next == 0 || (before == writer && *next == number + 1));
            }
        }
    }
}

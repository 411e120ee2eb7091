//! Tracks from a replica's answers whether it accepts prompts as token ids.

use std::sync::atomic::{AtomicU32, Ordering};

/// A replica that ignored this many id prompts in a row counts as not accepting them. A single answer may have come
/// from another server behind the same address.
const ENOUGH: u32 = 3;
/// Such a replica still gets one of this many prompts as ids, because it may be another server by now.
const TRIED_AGAIN: u32 = 64;

/// The history of a replica with id prompts.
#[derive(Debug, Default)]
pub(super) struct IdsSupport {
    ignored_in_a_row: AtomicU32,
    prompts_since: AtomicU32,
}

impl IdsSupport {
    /// Whether the next prompt is sent as ids. Called once per prompt.
    pub(super) fn is_worth_a_try(&self) -> bool {
        if self.ignored_in_a_row.load(Ordering::Relaxed) < ENOUGH {
            return true;
        }
        // The counter is not reset, so the next try may come early.
        let prompts = self.prompts_since.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        prompts.is_multiple_of(TRIED_AGAIN)
    }

    /// Notes that the replica accepted an id prompt, or may have been restarted.
    pub(super) fn begin_anew(&self) {
        self.ignored_in_a_row.store(0, Ordering::Relaxed);
    }

    /// Notes that the replica rendered the messages instead. Returns true if the replica now counts as not accepting
    /// ids.
    pub(super) fn ignored(&self) -> bool {
        let before = self.ignored_in_a_row.fetch_add(1, Ordering::Relaxed);
        // Only the deciding prompt returns true, so that the caller logs once.
        before.wrapping_add(1) == ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_ignored_prompt_decides_nothing_and_three_in_a_row_do() {
        let support = IdsSupport::default();
        for _ in 0..10 {
            assert!(!support.ignored() && !support.ignored() && support.is_worth_a_try());
            support.begin_anew();
        }
        assert_eq!(
            [support.ignored(), support.ignored(), support.ignored(), support.ignored()],
            [false, false, true, false]
        );
        assert!(!support.is_worth_a_try());
    }

    #[test]
    fn a_replica_that_takes_none_is_tried_now_and_then_and_comes_back() {
        let support = IdsSupport::default();
        assert_eq!((0..ENOUGH).filter(|_| support.ignored()).count(), 1);
        assert_eq!((0..640).filter(|_| support.is_worth_a_try()).count(), 10);
        support.begin_anew();
        assert!((0..100).all(|_| support.is_worth_a_try()));
    }
}

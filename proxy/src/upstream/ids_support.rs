//! Whether a replica takes prompts as token ids, as its answers tell.

use std::sync::atomic::{AtomicU32, Ordering};

/// A replica that ignored so many prompts of ids in a row takes none, as far as is known. One alone may have come from
/// another server behind the same address.
const ENOUGH: u32 = 3;
/// One prompt of so many still goes as ids to a replica that took none: it may be another server by now.
const TRIED_AGAIN: u32 = 64;

/// What a replica did with prompts of ids.
#[derive(Debug, Default)]
pub(super) struct IdsSupport {
    ignored_in_a_row: AtomicU32,
    prompts_since: AtomicU32,
}

impl IdsSupport {
    /// Whether the next prompt goes as ids. Asked once per prompt.
    pub(super) fn is_worth_a_try(&self) -> bool {
        if self.ignored_in_a_row.load(Ordering::Relaxed) < ENOUGH {
            return true;
        }
        let prompts = self.prompts_since.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        prompts.is_multiple_of(TRIED_AGAIN)
    }

    /// The replica took a prompt of ids, or was started anew.
    pub(super) fn begin_anew(&self) {
        self.ignored_in_a_row.store(0, Ordering::Relaxed);
    }

    /// The replica rendered the messages of a prompt of ids instead. True where that decides that it takes none.
    pub(super) fn ignored(&self) -> bool {
        let before = self.ignored_in_a_row.fetch_add(1, Ordering::Relaxed);
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

//! Runs of trained tokens, for trainers that take ranges instead of a mask.

use std::ops::Range;

/// Returns the maximal ranges of a mask in which every token is trained, in order.
pub(crate) fn trained_runs(mask: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut end = 0;
    let stretches = mask.chunk_by(|a, b| a == b).map(move |stretch| {
        let start = end;
        end += stretch.len();
        (start..end, stretch.first() == Some(&1))
    });
    stretches.filter_map(|(range, is_trained)| is_trained.then_some(range))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn runs_are_where_the_mask_is_one() {
        let runs = |mask: &[u8]| trained_runs(mask).map(|run| (run.start, run.end)).collect::<Vec<_>>();
        assert_eq!(runs(&[0, 0, 1, 0, 1, 1]), [(2, 3), (4, 6)]);
        assert_eq!(runs(&[1, 1, 0]), [(0, 2)]);
        assert_eq!(runs(&[0, 0]), []);
        assert_eq!(runs(&[]), []);
    }

    proptest! {
        #[test]
        fn runs_are_the_mask(mask in proptest::collection::vec(0..2_u8, 0..40)) {
            let mut again = vec![0; mask.len()];
            let mut before = None;
            for run in trained_runs(&mask) {
                prop_assert!(before.is_none_or(|before| before < run.start), "two runs touch");
                before = Some(run.end);
                again[run].fill(1);
            }
            prop_assert_eq!(again, mask);
        }
    }
}

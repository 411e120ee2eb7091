//! The number by which a trainer identifies the weights that sampled a token.
//!
//! rolltap counts policy versions from 0 in the order of their first use. A trainer that reports its own step with each
//! update of the weights finds that step in the label, and measures staleness by it. rolltap's count would differ from
//! the step by a constant. If any version of a trial has no whole number as its label, only the count is available.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::row::RolloutRow;

/// How the versions of one trial are numbered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PolicyNumbers {
    /// By their labels, each of which is a whole number.
    Labels,
    /// By rolltap's count.
    Count,
}

impl PolicyNumbers {
    /// Returns the numbering for the rows of one trial.
    pub(crate) fn of(rows: &[RolloutRow]) -> Self {
        let is_labelled = |row: &RolloutRow| {
            versions(row, &row.sampled_mask).iter().all(|&version| label_number(row, version).is_some())
        };
        // All rows of a trial use one numbering: labels and counts are not comparable.
        if rows.iter().all(is_labelled) { Self::Labels } else { Self::Count }
    }

    /// Returns the number of a version that sampled a token of the row.
    pub(crate) fn number(self, row: &RolloutRow, version: i32) -> i64 {
        let label = match self {
            Self::Labels => label_number(row, version),
            Self::Count => None,
        };
        label.unwrap_or_else(|| version.into())
    }

    /// Returns the number of a token of this version; −1 if the token was not sampled.
    pub(crate) fn of_token(self, row: &RolloutRow, version: i32) -> i64 {
        if version >= 0 { self.number(row, version) } else { -1 }
    }

    /// Returns the lowest number of these tokens of the row, all of which were sampled. −1 if there are none.
    pub(crate) fn oldest(self, row: &RolloutRow, tokens: Range<usize>) -> i64 {
        let versions = row.token_version.get(tokens).unwrap_or_default();
        // Runs, because the lookup of a label per token would be slow.
        let runs = versions.chunk_by(|a, b| a == b).filter_map(<[_]>::first);
        runs.map(|&version| self.number(row, version)).min().unwrap_or(-1)
    }

    /// Returns the lowest and the highest number of the trained tokens of the row, or of its sampled tokens if none is
    /// trained. −1 if nothing was sampled.
    pub(crate) fn span(self, row: &RolloutRow) -> (i64, i64) {
        let numbers = || telling_versions(row).into_iter().map(|version| self.number(row, version));
        (numbers().min().unwrap_or(-1), numbers().max().unwrap_or(-1))
    }
}

/// Returns the names of the versions of the row's trained tokens (of all sampled tokens if none is trained). Each name
/// appears once, oldest first, and is the label or rolltap's count.
pub(crate) fn names(row: &RolloutRow) -> Vec<String> {
    let name = |version: i32| {
        let count = version.to_string();
        row.version_labels.get(&count).cloned().unwrap_or(count)
    };
    telling_versions(row).into_iter().map(name).collect()
}

fn telling_versions(row: &RolloutRow) -> BTreeSet<i32> {
    let trained = versions(row, &row.loss_mask);
    if trained.is_empty() { versions(row, &row.sampled_mask) } else { trained }
}

fn versions(row: &RolloutRow, mask: &[u8]) -> BTreeSet<i32> {
    let masked = row.token_version.iter().zip(mask).filter(|&(_, &mask)| mask != 0);
    let mut versions = BTreeSet::new();
    let mut last = None;
    // Nearly all tokens have the version of the previous token. Skipping these avoids a set lookup per token.
    for (&version, _) in masked {
        if last.replace(version) != Some(version) {
            versions.insert(version);
        }
    }
    versions
}

fn label_number(row: &RolloutRow, version: i32) -> Option<i64> {
    let label = row.version_labels.get(&version.to_string())?;
    label.parse().ok().filter(|number| *number >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing::fixture::forked;

    /// The tokens that only the second branch has are of version 1.
    fn rows(labels: &[(&str, &str)]) -> Vec<RolloutRow> {
        let mut rows = forked().rows;
        rows[1].token_version = vec![-1, -1, 0, -1, 1, 1];
        for row in &mut rows {
            row.version_labels =
                labels.iter().map(|&(version, label)| (version.into(), label.into())).collect();
        }
        rows
    }

    #[test]
    fn labels_that_are_all_numbers_are_the_trainers_steps() {
        let rows = rows(&[("0", "40"), ("1", "41")]);
        let numbers = PolicyNumbers::of(&rows);
        assert_eq!(numbers.span(&rows[0]), (40, 40));
        assert_eq!(numbers.number(&rows[1], 0), 40);
        assert_eq!(names(&rows[1]), ["41"]);
    }

    #[test]
    fn a_label_missing_or_no_number_leaves_the_count() {
        for labels in [&[("0", "40")][..], &[("0", "40"), ("1", "step-41")], &[("0", "-2"), ("1", "41")]] {
            let rows = rows(labels);
            assert_eq!(PolicyNumbers::of(&rows).span(&rows[1]), (1, 1), "{labels:?}");
        }
    }

    #[test]
    fn what_others_own_does_not_make_a_row_older() {
        let mut rows = rows(&[]);
        assert_eq!(PolicyNumbers::of(&rows).span(&rows[1]), (1, 1));
        rows[1].loss_mask[2] = 1;
        assert_eq!(
            (PolicyNumbers::of(&rows).span(&rows[1]), names(&rows[1])),
            ((0, 1), vec!["0".to_owned(), "1".to_owned()])
        );
        rows[1].loss_mask.fill(0);
        assert_eq!(PolicyNumbers::of(&rows).span(&rows[1]), (0, 1));
    }
}

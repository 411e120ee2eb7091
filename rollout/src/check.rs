//! Every invariant of `rollout/1` as code: when rows are written, in `rolltap check`, and in tests.
//!
//! [`Checker`] takes the rows of a file one after the other and says of each what is wrong with it. It holds the
//! sampled tokens of one trial, never whole rows, so a file of any size can be checked. What was captured of a trial
//! can be handed along; then the rows are held against that too. [`Invariant`] names what is checked.

mod captured;
mod invariant;
mod row;
mod trial;

use std::collections::{BTreeMap, HashSet};
use std::fmt;

pub use captured::Captured;
pub use invariant::Invariant;

use crate::ids::TrialId;
use crate::row::RolloutRow;
use trial::TrialState;

/// One way in which a row, or a trial's rows together, are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The trial.
    pub trial_id: String,
    /// The row's `branch_index`; none where it is about the trial's rows together.
    pub branch_index: Option<i32>,
    /// What does not hold.
    pub invariant: Invariant,
    /// Where exactly, and the values found there.
    pub detail: String,
}

/// One line, whatever a foreign file's names hold.
impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let branch = self.branch_index.map_or_else(String::new, |index| format!(", branch {index}"));
        let line = format!("trial {}{branch}: {}: {}", self.trial_id, self.invariant, self.detail);
        line.chars().try_for_each(|c| {
            if c.is_control() { write!(f, "{}", c.escape_default()) } else { write!(f, "{c}") }
        })
    }
}

/// How to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Token ids must lie below this, beside what the rows themselves say in `vocab_size`.
    pub vocab_size: Option<u32>,
    /// So many breaches of one invariant are told of one row (or of one trial's rows together); the others are
    /// counted in one last breach of that invariant. A row shifted by one token would otherwise fill a terminal.
    pub details_per_invariant: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { vocab_size: None, details_per_invariant: 5 }
    }
}

/// Checks rows as they come, those of one trial next to each other.
///
/// ```
/// # fn rows() -> Vec<rolltap_rollout::row::RolloutRow> { Vec::new() }
/// use rolltap_rollout::check::{Checker, Options};
///
/// let mut checker = Checker::new(Options::default());
/// let mut breaches = Vec::new();
/// for row in rows() {
///     breaches.extend(checker.row(&row, None));
/// }
/// breaches.extend(checker.finish());
/// assert!(breaches.is_empty());
/// ```
#[derive(Debug)]
pub struct Checker {
    options: Options,
    trial: Option<TrialState>,
    finished: HashSet<String>,
}

impl Checker {
    /// A checker that has seen no row.
    pub fn new(options: Options) -> Self {
        Self { options, trial: None, finished: HashSet::new() }
    }

    /// The breaches that this row makes known: its own and, where it begins another trial, those of the trial before
    /// as a whole. `captured` holds every call of the row's trial, where they are at hand.
    #[must_use = "these breaches are not told again"]
    pub fn row(&mut self, row: &RolloutRow, captured: Option<&Captured<'_>>) -> Vec<Breach> {
        let mut breaches = Vec::new();
        let mut found = Findings::new(&row.trial_id, Some(row.branch_index), self.options);
        let is_same_trial = self.trial.as_ref().is_some_and(|trial| trial.trial_id() == row.trial_id);
        if !is_same_trial {
            breaches = self.finish_trial();
            if self.finished.contains(&row.trial_id) {
                found.add(Invariant::TrialAdjacent, || {
                    "rows of another trial stand between this trial's".to_owned()
                });
            }
        }
        let trial = self.trial.get_or_insert_with(|| TrialState::new(row));
        let is_aligned = row::check(row, self.options.vocab_size, &mut found);
        trial.add(row, is_aligned, &mut found);
        if let Some(captured) = captured {
            trial.expect(captured);
            captured::check(row, is_aligned, captured, &mut found);
        }
        breaches.extend(found.into_breaches());
        breaches
    }

    /// The breaches of the last trial as a whole.
    #[must_use = "these breaches are not told again"]
    pub fn finish(mut self) -> Vec<Breach> {
        self.finish_trial()
    }

    fn finish_trial(&mut self) -> Vec<Breach> {
        let Some(trial) = self.trial.take() else { return Vec::new() };
        self.finished.insert(trial.trial_id().to_owned());
        let mut found = Findings::new(trial.trial_id(), None, self.options);
        trial.finish(&mut found);
        found.into_breaches()
    }
}

/// Checks all rows of one trial, which may be none, against all that was captured of it.
pub fn check_trial(
    trial_id: &TrialId,
    rows: &[RolloutRow],
    captured: Option<&Captured<'_>>,
    options: Options,
) -> Vec<Breach> {
    let mut checker = Checker::new(options);
    let mut breaches: Vec<_> = rows.iter().flat_map(|row| checker.row(row, captured)).collect();
    breaches.extend(checker.finish());
    if let (true, Some(captured)) = (rows.is_empty(), captured) {
        let mut found = Findings::new(trial_id.as_str(), None, options);
        captured::check_presence(&captured.answers(), &HashSet::new(), &mut found);
        breaches.extend(found.into_breaches());
    }
    breaches
}

/// The breaches of one row, or of one trial's rows together, while they are collected.
struct Findings<'a> {
    trial_id: &'a str,
    branch_index: Option<i32>,
    limit: usize,
    kept: Vec<Breach>,
    counts: BTreeMap<Invariant, usize>,
}

impl<'a> Findings<'a> {
    fn new(trial_id: &'a str, branch_index: Option<i32>, options: Options) -> Self {
        let limit = options.details_per_invariant;
        Self { trial_id, branch_index, limit, kept: Vec::new(), counts: BTreeMap::new() }
    }

    fn add(&mut self, invariant: Invariant, detail: impl FnOnce() -> String) {
        let count = self.counts.entry(invariant).or_default();
        *count += 1;
        if *count <= self.limit {
            self.keep(invariant, detail());
        }
    }

    /// Adds unless `holds`.
    fn require(&mut self, holds: bool, invariant: Invariant, detail: impl FnOnce() -> String) {
        if !holds {
            self.add(invariant, detail);
        }
    }

    fn keep(&mut self, invariant: Invariant, detail: String) {
        let trial_id = self.trial_id.to_owned();
        self.kept.push(Breach { trial_id, branch_index: self.branch_index, invariant, detail });
    }

    fn into_breaches(mut self) -> Vec<Breach> {
        for (invariant, count) in std::mem::take(&mut self.counts) {
            if let Some(more @ 1..) = count.checked_sub(self.limit) {
                self.keep(invariant, format!("{more} more of this kind"));
            }
        }
        self.kept
    }
}

//! Every invariant of `rollout/1` as code, for the export of rows, for `rolltap check`, and for tests.
//!
//! [`Checker`] takes the rows of a file one after the other and returns the breaches of each. It stores the sampled
//! tokens of one trial and never whole rows, so it can check a file of any size. If the caller passes the captured
//! calls of a trial, the rows are compared with these too. [`Invariant`] names each check.

mod captured;
mod invariant;
pub mod recomputation;
mod row;
mod trial;

use std::collections::{BTreeMap, HashSet};
use std::fmt;

pub use captured::Captured;
pub use invariant::Invariant;

use crate::ids::TrialId;
use crate::row::RolloutRow;
use trial::TrialState;

/// One breach of an invariant by a row, or by the rows of a trial together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The trial.
    pub trial_id: String,
    /// The row's `branch_index`, or `None` if the breach concerns the rows of the trial together.
    pub branch_index: Option<i32>,
    /// The invariant that does not hold.
    pub invariant: Invariant,
    /// The exact position, and the values there.
    pub detail: String,
}

/// Writes one line, because names in a foreign file may contain control characters.
impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let branch = self.branch_index.map_or_else(String::new, |index| format!(", branch {index}"));
        f.write_str(&one_line(&format!(
            "trial {}{branch}: {}: {}",
            self.trial_id, self.invariant, self.detail
        )))
    }
}

/// Escapes the control characters of a text that contains foreign names.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// The options of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The exclusive upper bound of token ids, in addition to the rows' own `vocab_size`.
    pub vocab_size: Option<u32>,
    /// The number of reported breaches per invariant and row (or per trial, for its rows together). One last breach
    /// counts the others. A row that is shifted by one token would otherwise fill a terminal.
    pub details_per_invariant: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { vocab_size: None, details_per_invariant: 5 }
    }
}

/// Checks rows one after the other. The rows of a trial must be adjacent.
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
    /// Returns a checker before its first row.
    pub fn new(options: Options) -> Self {
        Self { options, trial: None, finished: HashSet::new() }
    }

    /// Returns the breaches of this row. If the row begins another trial, the breaches of the previous trial as a whole
    /// come first. `captured` has every call of the row's trial, if available.
    #[must_use = "further breaches of this kind are not listed"]
    pub fn row(&mut self, row: &RolloutRow, captured: Option<&Captured<'_>>) -> Vec<Breach> {
        let mut breaches = Vec::new();
        let mut found = Findings::new(&row.trial_id, Some(row.branch_index), self.options);
        // Only one trial is in memory, so the next trial completes the previous one.
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
        // First the row alone: a misaligned row must not reach the checks of its tokens.
        let is_aligned = row::check(row, self.options.vocab_size, &mut found);
        trial.add(row, is_aligned, &mut found);
        if let Some(captured) = captured {
            trial.expect(captured);
            captured::check(row, is_aligned, captured, &mut found);
        }
        breaches.extend(found.into_breaches());
        breaches
    }

    /// Returns the breaches of the last trial as a whole.
    #[must_use = "further breaches of this kind are not listed"]
    pub fn finish(mut self) -> Vec<Breach> {
        self.finish_trial()
    }

    fn finish_trial(&mut self) -> Vec<Breach> {
        let Some(trial) = self.trial.take() else { return Vec::new() };
        // The names of finished trials show rows of one trial that are not adjacent.
        self.finished.insert(trial.trial_id().to_owned());
        let mut found = Findings::new(trial.trial_id(), None, self.options);
        trial.finish(&mut found);
        found.into_breaches()
    }
}

/// Checks all rows of one trial against its complete capture. The list of rows may be empty.
pub fn check_trial(
    trial_id: &TrialId,
    rows: &[RolloutRow],
    captured: Option<&Captured<'_>>,
    options: Options,
) -> Vec<Breach> {
    let mut checker = Checker::new(options);
    let mut breaches: Vec<_> = rows.iter().flat_map(|row| checker.row(row, captured)).collect();
    breaches.extend(checker.finish());
    // Without a row the checker has no trial, so it cannot report captured answers that are missing.
    if let (true, Some(captured)) = (rows.is_empty(), captured) {
        let mut found = Findings::new(trial_id.as_str(), None, options);
        captured::check_presence(&captured.answers(), &HashSet::new(), &mut found);
        breaches.extend(found.into_breaches());
    }
    breaches
}

/// The breaches of one row, or of the rows of one trial together, during a check.
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

    /// Adds a breach unless `holds`.
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

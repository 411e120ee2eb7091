//! Reads trials from a file of rows.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use rolltap_orchestrator::failure::chain;
use rolltap_orchestrator::source;
use rolltap_rollout::export::pipeline::projection::RowFacts;
use rolltap_rollout::row::RolloutRow;

use super::trial::{SearchedTrial, TrialEntry};

/// The maximum number of unreadable rows that a page lists.
const LISTED: usize = 10;

/// Whether the name of the file is that of a file of rows.
pub(super) fn is_readable(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("jsonl" | "ndjson" | "parquet"))
}

/// Reads the list of trials, in the order of their first rows. Only the necessary columns of a Parquet file are read.
pub(super) fn entries(file: &Path, problems: &mut Vec<String>) -> Vec<TrialEntry> {
    let rows = match source::rows::<RowFacts>(file) {
        Ok(rows) => rows,
        Err(error) => {
            problems.push(chain(&error));
            return Vec::new();
        }
    };
    let (mut entries, mut places): (Vec<TrialEntry>, HashMap<String, usize>) = Default::default();
    let mut unreadable = 0_usize;
    for row in rows {
        match row {
            Ok(facts) if places.contains_key(&facts.trial_id) => {}
            Ok(facts) => {
                places.insert(facts.trial_id.clone(), entries.len());
                entries.push(TrialEntry::of_facts(facts));
            }
            Err(problem) => {
                unreadable += 1;
                if unreadable <= LISTED {
                    problems.push(format!("{}: {problem}", file.display()));
                }
            }
        }
    }
    if unreadable > LISTED {
        problems.push(format!("{}: {} further rows cannot be read", file.display(), unreadable - LISTED));
    }
    entries
}

/// Reads the rows of these trials, while `visit` returns true. Consecutive rows of a trial come together.
pub(super) fn visit_trials(
    file: &Path,
    wanted: &HashSet<&str>,
    visit: &mut dyn FnMut(SearchedTrial<'_>) -> bool,
) {
    // The list of trials already reports a file or rows that cannot be read.
    let Ok(rows) = source::rows::<RolloutRow>(file) else { return };
    let mut wanted_rows =
        rows.filter_map(Result::ok).filter(|row| wanted.contains(row.trial_id.as_str())).peekable();
    while let Some(first) = wanted_rows.next() {
        let id = first.trial_id.clone();
        let mut of_trial = vec![first];
        while let Some(row) = wanted_rows.next_if(|row| row.trial_id == id) {
            of_trial.push(row);
        }
        if !visit(SearchedTrial { id: &id, rows: &of_trial, calls: &[] }) {
            return;
        }
    }
}

/// Reads the rows of one trial. The whole file is read, because rows have no index.
pub(super) fn rows_of(file: &Path, trial: &str, problems: &mut Vec<String>) -> Vec<RolloutRow> {
    match source::rows::<RolloutRow>(file) {
        // The list of trials already reports unreadable rows.
        Ok(rows) => rows.filter_map(Result::ok).filter(|row| row.trial_id == trial).collect(),
        Err(error) => {
            problems.push(chain(&error));
            Vec::new()
        }
    }
}

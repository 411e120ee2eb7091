//! Reads trials from a file of rows.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use rolltap_orchestrator::failure::chain;
use rolltap_orchestrator::source::{self, PlacedRows, RowPlace};
use rolltap_rollout::export::pipeline::projection::RowFacts;
use rolltap_rollout::row::RolloutRow;

use super::problems::FirstProblems;
use super::trial::{SearchedTrial, TrialEntry};

/// The maximum number of unreadable rows that a page lists.
const LISTED: usize = 10;

/// Whether the name of the file is that of a file of rows.
pub(super) fn is_readable(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("jsonl" | "ndjson" | "parquet"))
}

/// A file of rows, with the places of the rows of each trial.
#[derive(Debug)]
pub(super) struct RowsFile {
    path: PathBuf,
    places: HashMap<String, Vec<RowPlace>>,
}

impl RowsFile {
    /// Reads the list of trials, in the order of their first rows. Only the necessary columns of a Parquet file are read.
    pub(super) fn read(path: &Path, problems: &mut Vec<String>) -> (Self, Vec<TrialEntry>) {
        let mut file = Self { path: path.to_owned(), places: HashMap::new() };
        let mut entries = Vec::new();
        let rows = match PlacedRows::<RowFacts>::of(path) {
            Ok(rows) => rows,
            Err(error) => {
                problems.push(chain(&error));
                return (file, entries);
            }
        };
        let mut unreadable = FirstProblems::at_most(LISTED);
        for (place, row) in rows {
            match row {
                Ok(facts) => {
                    let places = file.places.entry(facts.trial_id.clone()).or_default();
                    places.push(place);
                    if places.len() == 1 {
                        entries.push(TrialEntry::of_facts(facts));
                    }
                }
                Err(problem) => unreadable.add(|| format!("{}: {problem}", path.display())),
            }
        }
        let further = |further| format!("{}: {further} further rows cannot be read", path.display());
        problems.extend(unreadable.into_lines(further));
        (file, entries)
    }

    /// Reads the rows of one trial. In a Parquet file, the rows before them in their row group are read too.
    pub(super) fn rows_of(&self, trial: &str, problems: &mut Vec<String>) -> Vec<RolloutRow> {
        let places = self.places.get(trial).map(Vec::as_slice).unwrap_or_default();
        let found = match source::rows_at::<RolloutRow>(&self.path, places) {
            Ok(found) => found,
            Err(error) => {
                problems.push(chain(&error));
                return Vec::new();
            }
        };
        let mut rows = Vec::new();
        for row in found {
            match row {
                Some(Ok(row)) if row.trial_id == trial => rows.push(row),
                Some(Err(problem)) => problems.push(format!("{}: {problem}", self.path.display())),
                Some(Ok(_)) | None => problems
                    .push(format!("{} has changed while it was read: reload the page", self.path.display())),
            }
        }
        rows
    }

    /// Reads the rows of these trials, while `visit` returns true and `has_time` too. `visit` gets each trial once, with all
    /// its rows.
    pub(super) fn visit_trials(
        &self,
        wanted: &HashSet<&str>,
        has_time: &dyn Fn() -> bool,
        visit: &mut dyn FnMut(SearchedTrial<'_>),
    ) {
        if wanted.is_empty() {
            return;
        }
        // The list of trials already reports a file or rows that cannot be read.
        let Ok(rows) = source::rows::<RolloutRow>(&self.path) else { return };
        let mut incomplete: HashMap<String, Vec<RolloutRow>> = HashMap::new();
        for row in rows.filter_map(Result::ok).take_while(|_| has_time()) {
            let id = row.trial_id.clone();
            let Some(places) = self.places.get(&id).filter(|_| wanted.contains(id.as_str())) else {
                continue;
            };
            let rows = incomplete.entry(id.clone()).or_default();
            rows.push(row);
            if rows.len() == places.len()
                && let Some(rows) = incomplete.remove(&id)
            {
                visit(SearchedTrial { id: &id, rows: &rows, calls: &[] });
            }
        }
        // A row that became unreadable leaves its trial incomplete.
        incomplete.iter().for_each(|(id, rows)| visit(SearchedTrial { id, rows, calls: &[] }));
    }
}

#[cfg(test)]
mod tests {
    use rolltap_rollout::export::formats::parquet::ParquetWriter;
    use rolltap_testing::{rollout_row, write_jsonl};
    use serde_json::Value;

    use super::*;

    /// Returns rows of three trials, whose rows are not sorted by trial.
    fn rows() -> Vec<Value> {
        let mut rows = ["one", "two", "one", "three", "two", "one"]
            .map(|trial| rollout_row(trial, "task", Some(1.0), 3))
            .to_vec();
        for (row, branch) in rows.iter_mut().zip([0, 0, 1, 0, 1, 2]) {
            row["branch_index"] = branch.into();
        }
        rows
    }

    fn branches(file: &RowsFile, trial: &str) -> Vec<i32> {
        let mut problems = Vec::new();
        let rows = file.rows_of(trial, &mut problems);
        assert_eq!(problems, Vec::<String>::new());
        rows.iter().map(|row| row.branch_index).collect()
    }

    #[test]
    fn the_rows_of_a_trial_are_read_from_their_places() {
        let dir = tempfile::tempdir().unwrap();
        let (jsonl, parquet) = (dir.path().join("rows.jsonl"), dir.path().join("rows.parquet"));
        write_jsonl(&jsonl, &rows());
        // Blank lines and a damaged one, which has no place.
        let text = std::fs::read_to_string(&jsonl).unwrap().replacen('\n', "\n\n\r\n{\n", 2);
        std::fs::write(&jsonl, text).unwrap();
        let mut writer = ParquetWriter::new(std::fs::File::create(&parquet).unwrap()).unwrap();
        for row in rows() {
            writer.write(&serde_json::from_value(row).unwrap()).unwrap();
        }
        writer.finish().unwrap();
        for (path, unreadable) in [(jsonl, 2), (parquet, 0)] {
            let mut problems = Vec::new();
            let (file, entries) = RowsFile::read(&path, &mut problems);
            assert_eq!(problems.len(), unreadable, "{problems:?}");
            assert_eq!(
                entries.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(),
                ["one", "two", "three"]
            );
            for (trial, expected) in [("one", vec![0, 1, 2]), ("two", vec![0, 1]), ("three", vec![0])] {
                assert_eq!(branches(&file, trial), expected, "{trial} of {}", path.display());
            }
        }
    }

    #[test]
    fn a_file_that_was_replaced_is_a_problem_of_the_page() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.jsonl");
        write_jsonl(&path, &rows());
        let (file, _) = RowsFile::read(&path, &mut Vec::new());
        write_jsonl(&path, &rows()[3..4]);
        let mut problems = Vec::new();
        assert!(file.rows_of("two", &mut problems).is_empty());
        assert!(!problems.is_empty(), "the page has a reason");
    }
}

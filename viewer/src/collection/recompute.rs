//! The report of `rolltap check --recompute-report`. It is read once, and then line by line for each page.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rolltap_orchestrator::job_dir::JobDir;
use rolltap_rollout::check::recomputation::RecomputedRow;

use super::problems::FirstProblems;
use super::state::FilesState;
use super::trial::TrialContent;

/// The maximum number of unreadable lines that a page lists.
const LISTED: usize = 10;

/// The report of a job, as its file had it when it was last read.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// The file that the user named.
    named: Option<PathBuf>,
    read: Mutex<Option<(FilesState, Arc<Report>)>>,
}

/// The places of the lines of a report.
#[derive(Debug)]
struct Report {
    file: PathBuf,
    /// The bytes of the lines of each trial.
    lines: HashMap<String, Vec<Range<u64>>>,
    /// The lines that cannot be read.
    problems: Vec<String>,
}

impl Reports {
    /// Takes this file instead of that in the directory of the job.
    pub(super) fn of_file(file: PathBuf) -> Self {
        Self { named: Some(file), read: Mutex::default() }
    }

    /// Adds the lines of the trial, and the lines of any trial that cannot be read as problems. `dir` is the directory of
    /// the job.
    pub(super) fn add_to(&self, content: &mut TrialContent, dir: Option<&Path>) {
        let in_dir = || dir.map(|dir| JobDir::at(dir).recompute()).filter(|file| file.is_file());
        let Some(file) = self.named.clone().or_else(in_dir) else { return };
        let report = self.report(file);
        content.problems.extend(report.problems.iter().cloned());
        match report.rows(&content.entry.id) {
            Ok(rows) => content.recomputed = rows,
            Err(error) => content.problems.push(format!("cannot read {}: {error}", report.file.display())),
        }
    }

    /// Reads the report, or returns what was read before if the file has not changed.
    fn report(&self, file: PathBuf) -> Arc<Report> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let state = FilesState::of([file.as_path()]);
        if let Some((known, report)) = &*read
            && *known == state
        {
            return Arc::clone(report);
        }
        let report = Arc::new(Report::read(file));
        *read = Some((state, Arc::clone(&report)));
        report
    }
}

impl Report {
    fn read(file: PathBuf) -> Self {
        let mut report = Self { file, lines: HashMap::new(), problems: Vec::new() };
        if let Err(error) = report.scan() {
            report.problems.push(format!("cannot read {}: {error}", report.file.display()));
        }
        report
    }

    /// Reads all lines, and forgets all but their places.
    fn scan(&mut self) -> io::Result<()> {
        let mut reader = BufReader::new(File::open(&self.file)?);
        let (mut start, mut line) = (0_u64, Vec::new());
        let mut unreadable = FirstProblems::at_most(LISTED);
        for number in 1_u64.. {
            line.clear();
            let length = reader.read_until(b'\n', &mut line)? as u64;
            if length == 0 {
                break;
            }
            match RecomputedRow::parse(&line) {
                Ok(row) => self.lines.entry(row.trial_id).or_default().push(start..start + length),
                Err(problem) => {
                    unreadable.add(|| format!("{}, line {number}: {problem}", self.file.display()));
                }
            }
            start += length;
        }
        let further = |further| format!("{}: {further} further lines cannot be read", self.file.display());
        self.problems.extend(unreadable.into_lines(further));
        Ok(())
    }

    /// Reads the lines of a trial.
    fn rows(&self, trial: &str) -> io::Result<Vec<RecomputedRow>> {
        let Some(lines) = self.lines.get(trial) else { return Ok(Vec::new()) };
        let mut file = File::open(&self.file)?;
        let mut rows = Vec::new();
        for line in lines {
            file.seek(SeekFrom::Start(line.start))?;
            let mut bytes = Vec::new();
            file.by_ref().take(line.end - line.start).read_to_end(&mut bytes)?;
            // The file may have changed since it was scanned.
            rows.push(RecomputedRow::parse(&bytes).map_err(io::Error::other)?);
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn line(trial: &str, logprob: f64) -> String {
        let line = json!({
            "schema_version": "recompute/1", "trial_id": trial, "branch_index": 0, "policy_versions": [], "model": "m",
            "weights": null, "token_bound": 1.0, "mean_bound": 0.1, "refused": null, "positions": [2],
            "captured": [-0.5], "recomputed": [logprob],
        });
        format!("{line}\n")
    }

    #[test]
    fn a_report_that_changes_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("report.jsonl");
        let reports = Reports::of_file(file.clone());
        let of = |trial: &str| reports.report(file.clone()).rows(trial).unwrap();
        std::fs::write(&file, line("one", -0.5) + &line("two", -0.75)).unwrap();
        assert_eq!((of("one").len(), of("two")[0].recomputed[0], of("three").len()), (1, Some(-0.75), 0));
        std::fs::write(&file, line("two", -0.75) + &line("one", -0.5) + &line("two", -1.0)).unwrap();
        assert_eq!((of("one").len(), of("two").len()), (1, 2));
    }

    proptest! {
        #[test]
        fn any_file_is_read_with_its_whole_lines(
            before in prop::collection::vec(any::<u8>(), 0..60), after in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("report.jsonl");
            std::fs::write(&file, [&before, &b"\n"[..], line("one", -0.5).as_bytes(), &after].concat()).unwrap();
            let report = Report::read(file);
            prop_assert_eq!(report.rows("one").unwrap().len(), 1);
        }
    }
}

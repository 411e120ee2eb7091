//! `rolltap check`: every invariant of rollouts, on a job directory, a capture store, or a single file.
//!
//! The invariants are [`rolltap_rollout::check`]'s. Here is what they are held against: rows of both files of a job
//! against the calls in its capture store and against each other, or the rows that a capture store would give.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rolltap_proxy::store::{self, Archive, Damage, StoredTrial};
use rolltap_rollout::check::{Captured, Checker, Options, check_trial};
use rolltap_rollout::export::jsonl::JsonlReader;
use rolltap_rollout::export::parquet::{self, ParquetReader};
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::rollout;
use rolltap_rollout::row::RolloutRow;

use crate::job_dir::JobDir;

/// What was looked at, and how much of it is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Rows, those of two files counted twice.
    pub rows: u64,
    /// Breaches told.
    pub breaches: u64,
}

/// Why there was nothing to look at.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Nothing there.
    #[error("{} does not exist", .0.display())]
    NotFound(PathBuf),
    /// Something else is there.
    #[error("{} is no job directory (rollouts.jsonl, rollouts.parquet), no data directory of a proxy with trials in it, and no .jsonl or .parquet file", .0.display())]
    Nothing(PathBuf),
    /// The file system said no.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is no Parquet, or not of rollouts.
    #[error("{} cannot be read", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What the reader said.
        #[source]
        source: parquet::ReadError,
    },
    /// The capture store cannot be read.
    #[error(transparent)]
    Store(#[from] store::ReadError),
}

/// Checks whatever is at `path`, and tells each breach as it is found.
///
/// # Errors
/// There is nothing to check, or it cannot be opened. What cannot be understood within a file is a breach.
pub fn check(path: &Path, vocab_size: Option<u32>, tell: impl FnMut(&str)) -> Result<Checked, CheckError> {
    let options = Options { vocab_size, ..Options::default() };
    let mut teller = Teller { checked: Checked::default(), tell };
    if path.is_file() {
        check_file(path, &Captures::default(), options, &mut teller)?;
    } else if path.is_dir() {
        check_dir(path, options, &mut teller)?;
    } else {
        return Err(CheckError::NotFound(path.to_owned()));
    }
    Ok(teller.checked)
}

struct Teller<F> {
    checked: Checked,
    tell: F,
}

impl<F: FnMut(&str)> Teller<F> {
    fn breach(&mut self, line: &str) {
        self.checked.breaches += 1;
        (self.tell)(line);
    }
}

fn check_dir<F: FnMut(&str)>(dir: &Path, options: Options, teller: &mut Teller<F>) -> Result<(), CheckError> {
    let job = JobDir::at(dir);
    let (jsonl, parquet) = (job.rollouts_jsonl(), job.rollouts_parquet());
    let files: Vec<&Path> =
        [&jsonl, &parquet].into_iter().map(PathBuf::as_path).filter(|file| file.is_file()).collect();
    if files.is_empty() {
        let archive = Archive::open(dir)?;
        if archive.is_empty() {
            return Err(CheckError::Nothing(dir.to_owned()));
        }
        check_store(&archive, options, teller);
        return Ok(());
    }
    let data = job.data();
    let captures = if data.is_dir() { Captures::read(&data, teller)? } else { Captures::default() };
    for file in &files {
        check_file(file, &captures, options, teller)?;
    }
    if let [jsonl, parquet] = files.as_slice() {
        compare(jsonl, parquet, teller)?;
    }
    Ok(())
}

/// The calls of a job's capture store, by trial. Empty for a job whose proxy was another's.
#[derive(Default)]
struct Captures {
    trials: Option<BTreeMap<String, StoredTrial>>,
}

impl Captures {
    fn read<F: FnMut(&str)>(data: &Path, teller: &mut Teller<F>) -> Result<Self, CheckError> {
        let stored = store::read_dir(data)?;
        tell_damage(&stored.damage, teller);
        let trials = stored.trials.into_iter();
        let trials = trials.map(|trial| (trial.facts().trial_id.to_string(), trial));
        Ok(Self { trials: Some(trials.collect()) })
    }

    fn of(&self, trial_id: &str) -> Option<Captured<'_>> {
        Some(captured(self.trials.as_ref()?.get(trial_id)?))
    }

    fn all(&self) -> impl Iterator<Item = (&str, Captured<'_>)> {
        self.trials.iter().flatten().map(|(trial_id, trial)| (trial_id.as_str(), captured(trial)))
    }
}

fn captured(trial: &StoredTrial) -> Captured<'_> {
    Captured::new(trial.calls.iter().map(Arc::as_ref)).training(trial.facts().training)
}

fn tell_damage<F: FnMut(&str)>(damage: &[Damage], teller: &mut Teller<F>) {
    for damage in damage {
        teller.breach(&damage.to_string());
    }
}

/// What each sealed trial of a capture store would give, one at a time. An open one may still change.
fn check_store<F: FnMut(&str)>(archive: &Archive, options: Options, teller: &mut Teller<F>) {
    tell_damage(archive.damage(), teller);
    for (trial, damage) in archive.trials() {
        tell_damage(&damage, teller);
        if trial.sealed_at().is_none() {
            continue;
        }
        let calls = trial.calls.iter().map(Arc::as_ref);
        let rows = rollout::rows(trial.facts(), &trial.reward().cloned().unwrap_or_default(), calls);
        teller.checked.rows += rows.len() as u64;
        for breach in check_trial(&trial.facts().trial_id, &rows, Some(&captured(&trial)), options) {
            teller.breach(&breach.to_string());
        }
    }
}

fn check_file<F: FnMut(&str)>(
    path: &Path,
    captures: &Captures,
    options: Options,
    teller: &mut Teller<F>,
) -> Result<(), CheckError> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let mut checker = Checker::new(options);
    let mut seen = BTreeSet::new();
    for row in open(path)? {
        teller.checked.rows += 1;
        let row = match row {
            Ok(row) => row,
            Err(problem) => {
                teller.breach(&format!("{name}: {problem}"));
                continue;
            }
        };
        let calls = captures.of(&row.trial_id);
        if captures.trials.is_some() && calls.is_none() && !seen.contains(&row.trial_id) {
            teller.breach(&format!("{name}: trial {}: the capture store has no such trial", row.trial_id));
        }
        for breach in checker.row(&row, calls.as_ref()) {
            teller.breach(&format!("{name}: {breach}"));
        }
        seen.insert(row.trial_id);
    }
    let absent = captures.all().filter(|(trial_id, _)| !seen.contains(*trial_id));
    let absent = absent.filter_map(|(trial_id, calls)| Some((TrialId::new(trial_id).ok()?, calls)));
    let absent = absent.flat_map(|(trial_id, calls)| check_trial(&trial_id, &[], Some(&calls), options));
    for breach in checker.finish().into_iter().chain(absent) {
        teller.breach(&format!("{name}: {breach}"));
    }
    Ok(())
}

/// Both files of a job hold the same rows in the same order.
fn compare<F: FnMut(&str)>(jsonl: &Path, parquet: &Path, teller: &mut Teller<F>) -> Result<(), CheckError> {
    let (mut lines, mut records) = (open(jsonl)?, open(parquet)?);
    for number in 1_u64.. {
        match (lines.next(), records.next()) {
            (None, None) => break,
            (Some(Ok(line)), Some(Ok(record))) if line == record => {}
            (Some(Ok(line)), Some(Ok(_))) => {
                let place = format!("row {number} (trial {}, branch {})", line.trial_id, line.branch_index);
                teller.breach(&format!("{place} differs between rollouts.jsonl and rollouts.parquet"));
            }
            (Some(_), Some(_)) => break, // unreadable, which has been told
            (Some(_), None) => {
                teller.breach(&format!("rollouts.parquet ends before row {number} of rollouts.jsonl"));
                break;
            }
            (None, Some(_)) => {
                teller.breach(&format!("rollouts.jsonl ends before row {number} of rollouts.parquet"));
                break;
            }
        }
    }
    Ok(())
}

type Rows = Box<dyn Iterator<Item = Result<RolloutRow, String>>>;

fn open(path: &Path) -> Result<Rows, CheckError> {
    let file = File::open(path).map_err(|source| CheckError::Read { path: path.to_owned(), source })?;
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("jsonl" | "ndjson") => Ok(Box::new(
            JsonlReader::new(BufReader::new(file)).map(|row| row.map_err(|error| error.to_string())),
        )),
        Some("parquet") => {
            let reader = ParquetReader::new(file)
                .map_err(|source| CheckError::Parquet { path: path.to_owned(), source })?;
            Ok(Box::new(reader.map(|row| row.map_err(|error| error.to_string()))))
        }
        _ => Err(CheckError::Nothing(path.to_owned())),
    }
}

#[cfg(test)]
mod tests;

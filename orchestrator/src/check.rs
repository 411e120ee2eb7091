//! `rolltap check`: verifies every invariant of rollouts on a job directory, a capture store, or a single file.
//!
//! The invariants are in [`rolltap_rollout::check`]. This module supplies the data. The rows of a job's two files are
//! compared with each other, and with the calls in its capture store or in its agents' records. For a capture store
//! alone, the rows are those that it would give. [`recompute`] compares the logprobs of rows with those of a server.

pub mod recompute;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use rolltap_proxy::store::{self, Archive, Damage, StoredTrial};
use rolltap_rollout::call::Call;
use rolltap_rollout::check::{Captured, Checker, Options, check_trial};
use rolltap_rollout::ids::{RewardVersion, TrialId};
use rolltap_rollout::row::RolloutRow;
use rolltap_rollout::training::TrainingPolicy;

use crate::agent_reported;
use crate::job_dir::JobDir;
use crate::source::{JobFiles, Source, SourceError, rows};

/// The number of checked rows and of breaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Checked rows. Rows in two files count twice.
    pub rows: u64,
    /// Reported breaches.
    pub breaches: u64,
}

/// Checks the source at `path`, with the rewards of this version. `None` takes the reward of each trial itself. Passes each breach, as a line of text, to the callback as soon as it is found.
///
/// # Errors
/// There is nothing to check, or a file cannot be opened. Content that cannot be decoded is a breach, not an error.
pub fn check(
    path: &Path,
    version: Option<&RewardVersion>,
    vocab_size: Option<u32>,
    tell: impl FnMut(&str),
) -> Result<Checked, SourceError> {
    let options = Options { vocab_size, ..Options::default() };
    let mut teller = Teller { checked: Checked::default(), tell };
    match Source::at(path, version)? {
        Source::File(file) => check_file(&file, &Captures::default(), options, &mut teller)?,
        Source::Job(job) => check_job(&JobDir::at(path), &job, version, options, &mut teller)?,
        Source::Store(archive) => check_store(&archive, version, options, &mut teller),
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

fn check_job<F: FnMut(&str)>(
    dir: &JobDir,
    job: &JobFiles,
    version: Option<&RewardVersion>,
    options: Options,
    teller: &mut Teller<F>,
) -> Result<(), SourceError> {
    let mut captures = match &job.data {
        Some(data) => Captures::read(data, teller)?,
        None => Captures::default(),
    };
    captures.returned = taken_from_agents(dir, teller)?;
    captures.version = version.cloned();
    for file in &job.rows {
        check_file(file, &captures, options, teller)?;
    }
    if let [jsonl, parquet] = job.rows.as_slice() {
        compare(jsonl, parquet, teller)?;
    }
    Ok(())
}

/// The calls of a job, by trial.
#[derive(Default)]
struct Captures {
    /// The trials of the job's capture store. `None` if the job's proxy ran outside it.
    trials: Option<BTreeMap<String, StoredTrial>>,
    /// The calls that agents recorded, for trials without captured calls.
    returned: BTreeMap<String, Vec<Call>>,
    /// The version of the rewards of the rows.
    version: Option<RewardVersion>,
}

/// Reads the agents' records of the trials whose results state that their rows were made from them. A missing file
/// gives no calls, so that the rows made from it are breaches.
fn taken_from_agents<F: FnMut(&str)>(
    dir: &JobDir,
    teller: &mut Teller<F>,
) -> Result<BTreeMap<String, Vec<Call>>, SourceError> {
    let read = |source| SourceError::Read { path: dir.path().to_owned(), source };
    let mut taken = BTreeMap::new();
    for name in dir.trials().map_err(read)? {
        let trial = dir.trial(&name);
        let result = fs::read(trial.result()).ok();
        let result = result.and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
        if result.is_none_or(|result| result.pointer("/rolltap/returned/taken") != Some(&true.into())) {
            continue;
        }
        // No check compares a row with a time, so any time serves.
        let (found, problems) = agent_reported::look(&trial, &name, Timestamp::UNIX_EPOCH);
        // Another record may still be complete, so problems count only if there is no record at all.
        if found.is_none() {
            problems.iter().for_each(|problem| teller.breach(&format!("trial {name}: {problem}")));
        }
        taken.insert(name.to_string(), found.map(|found| found.calls).unwrap_or_default());
    }
    Ok(taken)
}

impl Captures {
    fn read<F: FnMut(&str)>(data: &Path, teller: &mut Teller<F>) -> Result<Self, SourceError> {
        let stored = store::read_dir(data)?;
        tell_damage(&stored.damage, teller);
        let trials = stored.trials.into_iter();
        let trials = trials.map(|trial| (trial.facts().trial_id.to_string(), trial));
        Ok(Self { trials: Some(trials.collect()), ..Self::default() })
    }

    fn of(&self, trial_id: &str) -> Option<Captured<'_>> {
        let stored = self.trials.as_ref().and_then(|trials| trials.get(trial_id));
        match self.returned.get(trial_id) {
            // An agent's record counts only if the proxy captured no call of the trial.
            Some(calls) if stored.is_none_or(|stored| stored.calls.is_empty()) => Some(handed_back(calls)),
            _ => stored.map(captured),
        }
    }

    /// Returns a breach if the reward of a row is not the captured one.
    fn reward_breach(&self, row: &RolloutRow) -> Option<String> {
        let stored = self.trials.as_ref()?.get(&row.trial_id)?.reward_in(self.version.as_ref());
        let version = stored.version.as_ref().map(ToString::to_string);
        let is_same = (row.reward, &row.rewards, row.reward_valid, &row.reward_version)
            == (stored.reward, &stored.rewards, stored.valid, &version);
        (!is_same).then(|| {
            let (at, own, stored) = (row.branch_index, number(row.reward), number(stored.reward));
            format!(
                "trial {} branch {at}: its reward is {own}, and the capture store has {stored}",
                row.trial_id
            )
        })
    }

    fn all(&self) -> impl Iterator<Item = (&str, Captured<'_>)> {
        let stored = self.trials.iter().flatten().map(|(trial_id, _)| trial_id);
        let names: BTreeSet<_> = stored.chain(self.returned.keys()).map(String::as_str).collect();
        names.into_iter().filter_map(|trial_id| Some((trial_id, self.of(trial_id)?)))
    }
}

fn number(reward: Option<f64>) -> String {
    reward.map_or_else(|| "null".to_owned(), |reward| reward.to_string())
}

fn captured(trial: &StoredTrial) -> Captured<'_> {
    Captured::new(trial.calls.iter().map(Arc::as_ref)).training(trial.facts().training)
}

fn handed_back(calls: &[Call]) -> Captured<'_> {
    Captured::new(calls).training(TrainingPolicy::default())
}

fn tell_damage<F: FnMut(&str)>(damage: &[Damage], teller: &mut Teller<F>) {
    for damage in damage {
        teller.breach(&damage.to_string());
    }
}

/// Checks the rows that each sealed trial of a capture store would give, one trial at a time. Skips open trials, which
/// may still change.
fn check_store<F: FnMut(&str)>(
    archive: &Archive,
    version: Option<&RewardVersion>,
    options: Options,
    teller: &mut Teller<F>,
) {
    tell_damage(archive.damage(), teller);
    for (trial, damage) in archive.trials() {
        tell_damage(&damage, teller);
        if trial.sealed_at().is_none() {
            continue;
        }
        let rows = archive.rows(&trial, version);
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
) -> Result<(), SourceError> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let mut checker = Checker::new(options);
    let mut seen = BTreeSet::new();
    for row in rows::<RolloutRow>(path)? {
        teller.checked.rows += 1;
        let row = match row {
            Ok(row) => row,
            Err(problem) => {
                teller.breach(&format!("{name}: {problem}"));
                continue;
            }
        };
        let calls = captures.of(&row.trial_id);
        // Without a capture store, such as for a single file, a trial without calls is no breach.
        if captures.trials.is_some() && calls.is_none() && !seen.contains(&row.trial_id) {
            teller.breach(&format!("{name}: trial {}: the capture store has no such trial", row.trial_id));
        }
        for breach in checker.row(&row, calls.as_ref()) {
            teller.breach(&format!("{name}: {breach}"));
        }
        if let Some(breach) = captures.reward_breach(&row) {
            teller.breach(&format!("{name}: {breach}"));
        }
        seen.insert(row.trial_id);
    }
    // A trial that is absent from the file may have calls, and then rows are missing.
    let absent = captures.all().filter(|(trial_id, _)| !seen.contains(*trial_id));
    let absent = absent.filter_map(|(trial_id, calls)| Some((TrialId::new(trial_id).ok()?, calls)));
    let absent = absent.flat_map(|(trial_id, calls)| check_trial(&trial_id, &[], Some(&calls), options));
    for breach in checker.finish().into_iter().chain(absent) {
        teller.breach(&format!("{name}: {breach}"));
    }
    Ok(())
}

/// Checks that both files of a job hold the same rows in the same order.
fn compare<F: FnMut(&str)>(jsonl: &Path, parquet: &Path, teller: &mut Teller<F>) -> Result<(), SourceError> {
    let (mut lines, mut records) = (rows::<RolloutRow>(jsonl)?, rows::<RolloutRow>(parquet)?);
    for number in 1_u64.. {
        match (lines.next(), records.next()) {
            (None, None) => break,
            (Some(Ok(line)), Some(Ok(record))) if line == record => {}
            (Some(Ok(line)), Some(Ok(_))) => {
                let place = format!("row {number} (trial {}, branch {})", line.trial_id, line.branch_index);
                teller.breach(&format!("{place} differs between rollouts.jsonl and rollouts.parquet"));
            }
            (Some(_), Some(_)) => break, // `check_file` has reported the unreadable row
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

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use tests::rows_of as sound_rows;

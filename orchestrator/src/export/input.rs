//! The input of an export. It is read twice: to survey all trials, and trial by trial.

use std::path::{Path, PathBuf};

use rolltap_proxy::store::{Archive, Damage, StoredTrial};
use rolltap_rollout::export::pipeline::projection::{RowAge, RowFacts, RowPart};
use rolltap_rollout::export::pipeline::survey::Survey;
use rolltap_rollout::ids::{RewardVersion, TrialId};
use rolltap_rollout::row::RolloutRow;

use super::ExportFailure;
use crate::source::{self, JobFiles, Source};

/// The source of the trials, with the version of their rewards.
pub(super) struct Input {
    kind: Kind,
    version: Option<RewardVersion>,
}

enum Kind {
    /// A file of rows, and the capture store of its job.
    Rows { file: PathBuf, captures: Option<PathBuf> },
    /// A capture store, whose rows are made on demand.
    Store(Box<Archive>),
}

/// The rows of each trial, one trial after the other.
pub(super) type Trials<'a> = Box<dyn Iterator<Item = Result<Vec<RolloutRow>, ExportFailure>> + 'a>;

impl Input {
    pub(super) fn open(path: &Path, version: Option<&RewardVersion>) -> Result<Self, ExportFailure> {
        let kind = match Source::at(path, version)? {
            Source::File(file) => Kind::Rows { file, captures: None },
            Source::Job(JobFiles { rows, data }) => {
                // The last file is Parquet if both exist. Only the required columns of Parquet have to be read.
                let file = rows.into_iter().next_back().unwrap_or_default();
                Kind::Rows { file, captures: data }
            }
            Source::Store(archive) => Kind::Store(archive),
        };
        Ok(Self { kind, version: version.cloned() })
    }

    fn version(&self) -> Option<&RewardVersion> {
        self.version.as_ref()
    }

    /// Surveys all trials. Returns the number of trials that are not complete.
    pub(super) fn survey(
        &self,
        survey: &mut Survey,
        mut progressed: impl FnMut(usize) -> Result<(), ExportFailure>,
    ) -> Result<u64, ExportFailure> {
        match &self.kind {
            Kind::Rows { file, captures } => {
                for rows in by_trial::<RowFacts>(file)? {
                    if let Some(first) = rows?.into_iter().next() {
                        survey.trial(first)?;
                        progressed(survey.len())?;
                    }
                }
                // Ages need another column of every row, so they are read only if a rule uses them.
                if survey.asks_for_ages() {
                    for rows in by_trial::<RowAge>(file)? {
                        survey.age(&rows?);
                        progressed(survey.len())?;
                    }
                }
                match captures {
                    Some(captures) => {
                        let archive = Archive::open(captures).map_err(source::SourceError::from)?;
                        survey_beside_rows(&archive, self.version(), survey, progressed)
                    }
                    None => Ok(0),
                }
            }
            Kind::Store(archive) => survey_store(archive, self.version(), survey, progressed),
        }
    }

    /// Reads the rows of all trials. `with_messages` adds the messages and tools of their calls from the captures. A
    /// file without captures has only its own.
    pub(super) fn trials(&self, with_messages: bool) -> Result<Trials<'_>, ExportFailure> {
        match &self.kind {
            Kind::Rows { file, captures } => {
                let trials = by_trial(file)?;
                let Some(captures) = captures.as_deref().filter(|_| with_messages) else {
                    return Ok(Box::new(trials));
                };
                let archive = Archive::open(captures).map_err(source::SourceError::from)?;
                Ok(Box::new(trials.map(move |rows| with_captured_messages(&archive, rows?))))
            }
            Kind::Store(archive) => {
                let trials = archive.trials().filter(|(trial, _)| trial.is_complete());
                let rows = move |(trial, damage): (StoredTrial, Vec<Damage>)| {
                    let mut rows = stored_rows(archive, &trial, self.version(), damage)?;
                    if with_messages {
                        trial.conversations().add_to(&mut rows);
                    }
                    Ok(rows)
                };
                Ok(Box::new(trials.map(rows)))
            }
        }
    }
}

fn survey_store(
    archive: &Archive,
    version: Option<&RewardVersion>,
    survey: &mut Survey,
    mut progressed: impl FnMut(usize) -> Result<(), ExportFailure>,
) -> Result<u64, ExportFailure> {
    intact(archive.damage().to_vec())?;
    let mut unfinished = 0;
    for (trial, damage) in archive.trials() {
        if !trial.is_complete() {
            unfinished += 1;
            continue;
        }
        let rows = stored_rows(archive, &trial, version, damage)?;
        match rows.first() {
            Some(first) => survey.trial(first.into())?,
            None => survey.trial_without_rows(without_rows(archive, &trial, version))?,
        }
        if survey.asks_for_ages() {
            survey.age(&rows.iter().map(RowAge::from).collect::<Vec<_>>());
        }
        progressed(survey.len())?;
    }
    take_closed_groups(archive, survey);
    Ok(unfinished)
}

/// Adds facts that a file of rows lacks: the trials that sampled nothing, and the closed groups. A trial with rows in
/// the store but not in the file was left out by the file's writer.
fn survey_beside_rows(
    archive: &Archive,
    version: Option<&RewardVersion>,
    survey: &mut Survey,
    mut progressed: impl FnMut(usize) -> Result<(), ExportFailure>,
) -> Result<u64, ExportFailure> {
    let mut unfinished = 0;
    // Inspecting a trial reads its calls, so this is skipped if the rows cover all trials.
    if archive.len() > survey.len() {
        intact(archive.damage().to_vec())?;
        for (trial, damage) in archive.trials() {
            if survey.has(trial.facts().trial_id.as_str()) {
                continue;
            }
            if !trial.is_complete() {
                unfinished += 1;
            } else if stored_rows(archive, &trial, version, damage)?.is_empty() {
                survey.trial_without_rows(without_rows(archive, &trial, version))?;
                progressed(survey.len())?;
            }
        }
    }
    if survey.asks_for_closed_groups() {
        take_closed_groups(archive, survey);
    }
    Ok(unfinished)
}

fn take_closed_groups(archive: &Archive, survey: &mut Survey) {
    archive.closed_groups().for_each(|group| survey.group_is_closed(group.to_string()));
}

fn stored_rows(
    archive: &Archive,
    trial: &StoredTrial,
    version: Option<&RewardVersion>,
    damage: Vec<Damage>,
) -> Result<Vec<RolloutRow>, ExportFailure> {
    intact(damage)?;
    Ok(archive.rows(trial, version))
}

/// Adds the messages and tools of the calls of a trial, whose rows are from a file beside the captures.
fn with_captured_messages(
    archive: &Archive,
    mut rows: Vec<RolloutRow>,
) -> Result<Vec<RolloutRow>, ExportFailure> {
    let trial_id = rows.first().and_then(|row| TrialId::new(row.trial_id.clone()).ok());
    // The file may have trials that another proxy captured, or that the agent recorded itself.
    if let Some((trial, damage)) = trial_id.and_then(|trial_id| archive.trial(&trial_id)) {
        intact(damage)?;
        trial.conversations().add_to(&mut rows);
    }
    Ok(rows)
}

/// Fails if captures are damaged. An incomplete last record is no damage, because its writer died before it was
/// acknowledged.
fn intact(damage: Vec<Damage>) -> Result<(), ExportFailure> {
    match damage.into_iter().find(|damage| !damage.is_torn_end) {
        Some(damage) => Err(ExportFailure::Damaged(damage)),
        None => Ok(()),
    }
}

/// Returns the facts that a trial's rows would have. `None` for the version takes the original reward.
pub fn without_rows(archive: &Archive, trial: &StoredTrial, version: Option<&RewardVersion>) -> RowFacts {
    let facts = trial.facts();
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let reward = trial.reward_in(version);
    RowFacts {
        trial_id: facts.trial_id.to_string(),
        task_id: facts.task_id.to_string(),
        group_id: facts.group_id.as_ref().map(ToString::to_string),
        group_size: facts.group_size.map(number),
        sample_index: number(facts.sample_index),
        attempt: number(facts.attempt),
        superseded: archive.is_superseded(trial),
        reward: reward.reward,
        rewards: reward.rewards,
        reward_valid: reward.valid,
        failure_cause: reward.failure_cause,
        suspicious: reward.suspicious,
        tokenizer_hash: facts.tokenizer_hash.clone(),
    }
}

/// Groups consecutive rows of a file by trial. Rows after an unreadable row are not read.
fn by_trial<T: RowPart + 'static>(
    file: &Path,
) -> Result<impl Iterator<Item = Result<Vec<T>, ExportFailure>>, ExportFailure> {
    let path = file.to_owned();
    let mut rows = source::rows::<T>(file)?.peekable();
    Ok(std::iter::from_fn(move || {
        let failed = |problem| ExportFailure::Row { path: path.clone(), problem };
        let mut trial: Vec<T> = match rows.next()? {
            Ok(first) => vec![first],
            Err(problem) => return Some(Err(failed(problem))),
        };
        let is_of_it = |next: &Result<T, String>, trial: &[T]| {
            let id = trial.first().map(RowPart::trial_id);
            next.as_ref().is_ok_and(|next| Some(next.trial_id()) == id)
        };
        while let Some(next) = rows.next_if(|next| is_of_it(next, &trial)) {
            trial.extend(next.ok());
        }
        Some(Ok(trial))
    }))
}

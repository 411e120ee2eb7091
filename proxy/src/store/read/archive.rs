//! A data directory as whoever is not its proxy reads it: checks and exports, a trial at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rolltap_rollout::call::Call;
use rolltap_rollout::ids::{GroupId, TrialId};
use rolltap_rollout::rollout::{self, Reward, TrialFacts};
use rolltap_rollout::row::RolloutRow;

use super::reader::Reader;
use super::recovery::{self, RecoveredTrial, Scan};
use crate::common::samples::{Sample, Samples};
use crate::store::format::conversation::StoredConversation;
use crate::store::format::event::{Opened, ReadCall};

/// Bytes that are no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} at byte {at}: {reason}", path.display())]
pub struct Damage {
    /// The segment.
    pub path: PathBuf,
    /// Where it begins, from the beginning of the file.
    pub at: u64,
    /// What is wrong.
    pub reason: String,
    /// Nothing comes after it: what a process leaves that dies while it writes.
    pub is_torn_end: bool,
}

/// Why a data directory cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// What the system said, or what is wrong with the file.
    pub source: std::io::Error,
}

/// A data directory that has been looked through; calls are read when they are asked for.
#[derive(Debug)]
pub struct Archive {
    dir: PathBuf,
    looked: Scan,
    samples: Samples,
}

/// A trial as the store has it.
#[derive(Clone, Debug)]
pub struct StoredTrial {
    found: RecoveredTrial,
    /// Its calls, in the order in which they ended.
    pub calls: Vec<Arc<Call>>,
    /// The conversation that each call belongs to, in the same order; none where nobody looked at it.
    pub told: Vec<Option<Arc<StoredConversation>>>,
}

/// All that a data directory holds.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Every trial, in the order in which they were opened.
    pub trials: Vec<StoredTrial>,
    /// What could not be read, and was passed over.
    pub damage: Vec<Damage>,
}

impl Archive {
    /// Looks through a data directory.
    ///
    /// # Errors
    /// It cannot be opened, or a file in it is none of ours.
    pub fn open(data_dir: &Path) -> Result<Self, ReadError> {
        let looked = recovery::look(data_dir)?;
        let mut samples = Samples::default();
        for opened in looked.trials.iter().map(|found| &found.opened) {
            let facts = &opened.facts;
            samples.add(Sample::of(facts), facts.attempt, (opened.at, facts.trial_id.clone()));
        }
        Ok(Self { dir: data_dir.to_owned(), looked, samples })
    }

    /// How many trials there are.
    pub fn len(&self) -> usize {
        self.looked.trials.len()
    }

    /// Whether there is neither a trial nor damage.
    pub fn is_empty(&self) -> bool {
        self.looked.trials.is_empty() && self.looked.damage.is_empty()
    }

    /// What could not be read, but for calls.
    pub fn damage(&self) -> &[Damage] {
        &self.looked.damage
    }

    /// Groups that take no further trial.
    pub fn closed_groups(&self) -> impl Iterator<Item = &GroupId> {
        self.looked.closed_groups.iter().map(|closed| &closed.group_id)
    }

    /// Whether a later attempt at the same sample counts instead of this trial.
    pub fn is_superseded(&self, trial: &StoredTrial) -> bool {
        let Opened { facts, at, .. } = &trial.found.opened;
        self.samples.is_superseded(&Sample::of(facts), facts.attempt, &(*at, facts.trial_id.clone()))
    }

    /// The rows that a trial would give, were it sealed as it is.
    pub fn rows(&self, trial: &StoredTrial) -> Vec<RolloutRow> {
        let reward = trial.reward().cloned().unwrap_or_default();
        let mut rows = rollout::rows(trial.facts(), &reward, trial.calls.iter().map(Arc::as_ref));
        let superseded = self.is_superseded(trial);
        rows.iter_mut().for_each(|row| row.superseded = superseded);
        rows
    }

    /// Every trial in the order in which they were opened, each with what of its calls could not be read. One at a time is
    /// in memory.
    pub fn trials(&self) -> impl Iterator<Item = (StoredTrial, Vec<Damage>)> {
        self.looked.trials.iter().map(|found| self.with_calls(found))
    }

    /// One trial.
    pub fn trial(&self, id: &TrialId) -> Option<(StoredTrial, Vec<Damage>)> {
        let found = self.looked.trials.iter().find(|found| found.opened.facts.trial_id == *id);
        found.map(|found| self.with_calls(found))
    }

    fn with_calls(&self, found: &RecoveredTrial) -> (StoredTrial, Vec<Damage>) {
        let mut reader = Reader::of(&self.dir);
        let (mut calls, mut told, mut damage) = (Vec::new(), Vec::new(), Vec::new());
        let trial_id = &found.opened.facts.trial_id;
        let undelivered = self.looked.index.undelivered(trial_id);
        for at in self.looked.index.calls(trial_id) {
            match reader.call(at) {
                Ok(ReadCall { mut kept, .. }) => {
                    kept.retract_if_in(&undelivered);
                    calls.push(kept.call);
                    told.push(kept.told);
                }
                Err(reason) => {
                    let path = at.segment.path(&self.dir);
                    damage.push(Damage { path, at: at.offset, reason, is_torn_end: false });
                }
            }
        }
        (StoredTrial { found: found.clone(), calls, told }, damage)
    }
}

impl StoredTrial {
    /// What the trial is.
    pub fn facts(&self) -> &TrialFacts {
        &self.found.opened.facts
    }

    /// When it was sealed, if it was.
    pub fn sealed_at(&self) -> Option<Timestamp> {
        self.found.sealed_at
    }

    /// Whether its calls and its reward are what they will stay: it is sealed, and the reward is there or its time is over.
    pub fn is_complete(&self) -> bool {
        self.found.sealed_at.is_some() && (self.found.reward.is_some() || self.found.completion.is_some())
    }

    /// Its reward, if it came.
    pub fn reward(&self) -> Option<&Reward> {
        self.found.reward.as_ref()
    }
}

/// Reads all of a data directory. What of it a process left half written, or cannot be read, is passed over.
///
/// # Errors
/// It cannot be opened, or a file in it is none of ours.
pub fn read_dir(data_dir: &Path) -> Result<Stored, ReadError> {
    let archive = Archive::open(data_dir)?;
    let mut stored = Stored { trials: Vec::new(), damage: archive.damage().to_vec() };
    for (trial, damage) in archive.trials() {
        stored.trials.push(trial);
        stored.damage.extend(damage);
    }
    Ok(stored)
}

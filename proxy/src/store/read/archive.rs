//! Reads a data directory without its proxy, for checks and exports, one trial at a time.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rolltap_rollout::call::Call;
use rolltap_rollout::conversation::Conversations;
use rolltap_rollout::ids::{GroupId, RewardVersion, TrialId};
use rolltap_rollout::rollout::{self, Reward, TrialFacts};
use rolltap_rollout::row::RolloutRow;

use super::reader::Reader;
use super::recovery::{self, RecoveredTrial, Scan};
use crate::common::samples::{Sample, Samples};
use crate::store::Summary;
use crate::store::format::conversation::StoredConversation;
use crate::store::format::event::{Opened, PolicyChange, ReadCall};
use crate::store::format::note::{CallNote, Pause};

/// A damaged part of a segment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} at byte {at}: {reason}", path.display())]
pub struct Damage {
    /// The path of the segment.
    pub path: PathBuf,
    /// The offset of the damage from the beginning of the file, in bytes.
    pub at: u64,
    /// A description of the damage.
    pub reason: String,
    /// Whether the damage is a half-written record at the end of the file. A process that dies while it writes leaves
    /// it.
    pub is_torn_end: bool,
}

/// The reason why a data directory cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct ReadError {
    /// The file or directory.
    pub path: PathBuf,
    /// The error of the operating system, or the defect of the file.
    pub source: std::io::Error,
}

/// A scanned data directory. Its calls are read on request.
#[derive(Debug)]
pub struct Archive {
    dir: PathBuf,
    looked: Scan,
    /// The index of each trial in the scan, by its name.
    by_id: HashMap<TrialId, usize>,
    samples: Samples,
}

/// A trial in the store.
#[derive(Clone, Debug)]
pub struct StoredTrial {
    found: RecoveredTrial,
    /// The calls of the trial, in the order in which they ended.
    pub calls: Vec<Arc<Call>>,
    /// The conversation of each call, in the same order. `None` if the call has no conversation.
    pub told: Vec<Option<Arc<StoredConversation>>>,
}

/// A trial in the store, without its calls.
#[derive(Clone, Copy, Debug)]
pub struct TrialOutline<'a> {
    found: &'a RecoveredTrial,
    calls: usize,
    is_superseded: bool,
}

/// The whole content of a data directory.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Every trial, in the order in which they were opened.
    pub trials: Vec<StoredTrial>,
    /// The damaged parts, which were skipped.
    pub damage: Vec<Damage>,
}

impl Archive {
    /// Scans a data directory. The archive is empty if the directory does not exist.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read, or if a segment is not a capture file of rolltap.
    pub fn open(data_dir: &Path) -> Result<Self, ReadError> {
        recovery::scan(data_dir).map(|looked| Self::of(data_dir, looked))
    }

    pub(super) fn of(data_dir: &Path, looked: Scan) -> Self {
        let mut samples = Samples::default();
        // All attempts are known after the scan, so that superseded trials are recognized.
        for opened in looked.trials.iter().map(|found| &found.opened) {
            let facts = &opened.facts;
            samples.add(Sample::of(facts), facts.attempt, (opened.at, facts.trial_id.clone()));
        }
        let names = looked.trials.iter().map(|found| found.opened.facts.trial_id.clone());
        let by_id = names.zip(0..).collect();
        Self { dir: data_dir.to_owned(), looked, by_id, samples }
    }

    /// Returns the number of trials.
    pub fn len(&self) -> usize {
        self.looked.trials.len()
    }

    /// Whether the directory has neither a trial nor damage.
    pub fn is_empty(&self) -> bool {
        self.looked.trials.is_empty() && self.looked.damage.is_empty()
    }

    /// Returns the damage that the scan found. Damage within calls is found when their trial is read.
    pub fn damage(&self) -> &[Damage] {
        &self.looked.damage
    }

    /// Returns the groups that accept no further trial.
    pub fn closed_groups(&self) -> impl Iterator<Item = &GroupId> {
        self.looked.closed_groups.iter().map(|closed| &closed.group_id)
    }

    /// Returns the changes of the policy version, and the labels that version 0 got, in the order in which they happened.
    pub fn policy_changes(&self) -> &[PolicyChange] {
        &self.looked.policy
    }

    /// Returns the pauses of the trainer, in the order in which they began.
    pub fn pauses(&self) -> &[Pause] {
        &self.looked.pauses
    }

    /// Returns the versions in which at least one trial has a reward, sorted.
    pub fn reward_versions(&self) -> BTreeSet<&RewardVersion> {
        self.looked.trials.iter().flat_map(|found| found.rewards.versions.keys()).collect()
    }

    /// Whether a later attempt at the same sample supersedes this trial.
    pub fn is_superseded(&self, trial: &StoredTrial) -> bool {
        let Opened { facts, at, .. } = &trial.found.opened;
        self.samples.is_superseded(&Sample::of(facts), facts.attempt, &(*at, facts.trial_id.clone()))
    }

    /// Builds the rows that the trial would have if it were sealed now, with the reward of this version. `None` takes
    /// the original reward.
    pub fn rows(&self, trial: &StoredTrial, version: Option<&RewardVersion>) -> Vec<RolloutRow> {
        let reward = trial.reward_in(version);
        let mut rows = rollout::rows(trial.facts(), &reward, trial.calls.iter().map(Arc::as_ref));
        let superseded = self.is_superseded(trial);
        rows.iter_mut().for_each(|row| row.superseded = superseded);
        rows
    }

    /// Reads every trial in the order in which they were opened, each with the damage among its calls. Only one trial
    /// at a time is in memory.
    pub fn trials(&self) -> impl Iterator<Item = (StoredTrial, Vec<Damage>)> {
        self.looked.trials.iter().map(|found| self.with_calls(found))
    }

    /// Reads one trial, with the damage among its calls. Returns `None` if the trial is unknown.
    pub fn trial(&self, id: &TrialId) -> Option<(StoredTrial, Vec<Damage>)> {
        let found = self.by_id.get(id).and_then(|index| self.looked.trials.get(*index));
        found.map(|found| self.with_calls(found))
    }

    /// Returns every trial without its calls, in the order in which they were opened. Nothing is read from disk.
    pub fn outlines(&self) -> impl Iterator<Item = TrialOutline<'_>> {
        self.looked.trials.iter().map(|found| {
            let Opened { facts, at, .. } = &found.opened;
            let is_superseded =
                self.samples.is_superseded(&Sample::of(facts), facts.attempt, &(*at, facts.trial_id.clone()));
            TrialOutline { found, calls: self.looked.index.calls(&facts.trial_id).len(), is_superseded }
        })
    }

    fn with_calls(&self, found: &RecoveredTrial) -> (StoredTrial, Vec<Damage>) {
        let mut reader = Reader::of(&self.dir);
        let (mut calls, mut told, mut damage) = (Vec::new(), Vec::new(), Vec::new());
        let trial_id = &found.opened.facts.trial_id;
        let undelivered = self.looked.index.undelivered(trial_id);
        for at in self.looked.index.calls(trial_id) {
            match reader.call(at) {
                Ok(ReadCall { mut kept, .. }) => {
                    // The record is complete, but its agent got an error. Training must not use the answer.
                    kept.retract_if_in(&undelivered);
                    calls.push(kept.call);
                    told.push(kept.told);
                }
                // One unreadable call does not prevent the reading of the others.
                Err(reason) => {
                    let path = at.segment.path(&self.dir);
                    damage.push(Damage { path, at: at.offset, reason, is_torn_end: false });
                }
            }
        }
        (StoredTrial { found: found.clone(), calls, told }, damage)
    }
}

impl TrialOutline<'_> {
    /// Returns the facts with which the trial was opened.
    pub fn facts(&self) -> &TrialFacts {
        &self.found.opened.facts
    }

    /// Returns the time at which the trial was opened.
    pub fn opened_at(&self) -> Timestamp {
        self.found.opened.at
    }

    /// Returns the time of the seal, or `None` if the trial is open.
    pub fn sealed_at(&self) -> Option<Timestamp> {
        self.found.sealed_at
    }

    /// Returns the original reward, or `None` if it is not set.
    pub fn reward(&self) -> Option<&Reward> {
        self.found.rewards.original.as_ref()
    }

    /// Returns the summary of the calls, or `None` if the trial is open.
    pub fn summary(&self) -> Option<&Summary> {
        self.found.summary.as_ref()
    }

    /// Returns the number of recorded calls.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Whether a later attempt at the same sample supersedes this trial.
    pub fn is_superseded(&self) -> bool {
        self.is_superseded
    }
}

impl StoredTrial {
    /// Returns the facts with which the trial was opened.
    pub fn facts(&self) -> &TrialFacts {
        &self.found.opened.facts
    }

    /// Returns the recorded conversations of the trial's calls.
    pub fn conversations(&self) -> Conversations {
        let calls = self.calls.iter().zip(&self.told);
        calls
            .filter_map(|(call, told)| Some((call.call_id.clone(), told.as_ref()?.to_conversation())))
            .collect()
    }

    /// Returns the time of the seal, or `None` if the trial is open.
    pub fn sealed_at(&self) -> Option<Timestamp> {
        self.found.sealed_at
    }

    /// Whether calls and reward are final: the trial is sealed, and its reward is set or the deadline has passed.
    pub fn is_complete(&self) -> bool {
        self.found.sealed_at.is_some()
            && (self.found.rewards.original.is_some() || self.found.completion.is_some())
    }

    /// Returns the notes about the trial's calls, in the order in which they were made.
    pub fn notes(&self) -> &[CallNote] {
        &self.found.notes
    }

    /// Returns the original reward, or `None` if it is not set.
    pub fn reward(&self) -> Option<&Reward> {
        self.found.rewards.original.as_ref()
    }

    /// Returns the reward in a version, or the original reward for `None`.
    pub fn reward_in(&self, version: Option<&RewardVersion>) -> Reward {
        self.found.rewards.of(version)
    }
}

/// Reads a whole data directory. Half-written and unreadable parts are skipped, and listed in `damage`.
///
/// # Errors
/// Returns an error if the directory cannot be read, or if a segment is not a capture file of rolltap.
pub fn read_dir(data_dir: &Path) -> Result<Stored, ReadError> {
    let archive = Archive::open(data_dir)?;
    let mut stored = Stored { trials: Vec::new(), damage: archive.damage().to_vec() };
    for (trial, damage) in archive.trials() {
        stored.trials.push(trial);
        stored.damage.extend(damage);
    }
    Ok(stored)
}

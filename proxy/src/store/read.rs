//! The way back: trials out of a data directory.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rolltap_rollout::call::Call;
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::rollout::{Reward, TrialFacts};

use super::{Event, FILE_NAME, Opened, PolicyChange};

/// A trial as the store has it.
#[derive(Clone, Debug)]
pub struct StoredTrial {
    opened: Opened,
    /// Its calls, in the order in which they ended.
    pub calls: Vec<Arc<Call>>,
    /// When it was sealed, if it was.
    pub sealed_at: Option<Timestamp>,
    /// Its reward, if it came.
    pub reward: Option<Reward>,
}

impl StoredTrial {
    /// What the trial is.
    pub fn facts(&self) -> &TrialFacts {
        &self.opened.facts
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }
}

/// What a data directory holds.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Every trial, in the order in which they were opened.
    pub trials: Vec<StoredTrial>,
    policy: Vec<PolicyChange>,
    /// What could not be read, and was passed over.
    pub damage: Vec<Damage>,
}

impl Stored {
    /// Every change of the policy version, in order.
    pub(crate) fn policy(&self) -> &[PolicyChange] {
        &self.policy
    }
}

/// A line that is no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {reason}", path.display())]
pub struct Damage {
    /// The event file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
    /// Nothing comes after it: what a process leaves that dies while it writes.
    pub is_torn_end: bool,
}

/// Why a data directory cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}", path.display())]
pub struct ReadError {
    path: PathBuf,
    source: std::io::Error,
}

/// Reads every trial of a data directory. One without an event file has none.
pub fn read_dir(data_dir: &Path) -> Result<Stored, ReadError> {
    let path = data_dir.join(FILE_NAME);
    let failed = |source| ReadError { path: path.clone(), source };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound && data_dir.is_dir() => {
            return Ok(Stored::default());
        }
        Err(error) => return Err(failed(error)),
    };
    let mut reading = Reading::default();
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    let mut number = 0;
    while lines.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        number += 1;
        if let Err(reason) = reading.take(&line) {
            let is_torn_end = line.last() != Some(&b'\n');
            reading.stored.damage.push(Damage { path: path.clone(), line: number, reason, is_torn_end });
        }
        line.clear();
    }
    Ok(reading.stored)
}

#[derive(Default)]
struct Reading {
    stored: Stored,
    by_id: HashMap<TrialId, usize>,
}

impl Reading {
    fn take(&mut self, line: &[u8]) -> Result<(), String> {
        match serde_json::from_slice(line).map_err(|error| error.to_string())? {
            Event::Opened(opened) => return self.open(*opened),
            Event::Call(call) => self.trial(&call.trial_id)?.calls.push(call),
            Event::Batch(calls) => {
                for call in calls {
                    self.trial(&call.trial_id)?.calls.push(call);
                }
            }
            Event::Policy(change) => return self.policy(change),
            Event::Sealed { trial_id, at } => self.trial(&trial_id)?.sealed_at = Some(at),
            Event::Rewarded { trial_id, reward } => self.trial(&trial_id)?.reward = Some(reward),
        }
        Ok(())
    }

    fn open(&mut self, opened: Opened) -> Result<(), String> {
        let trial_id = opened.facts.trial_id.clone();
        if self.by_id.contains_key(&trial_id) {
            return Err(format!("trial {trial_id} is opened a second time"));
        }
        self.by_id.insert(trial_id, self.stored.trials.len());
        self.stored.trials.push(StoredTrial { opened, calls: Vec::new(), sealed_at: None, reward: None });
        Ok(())
    }

    fn policy(&mut self, change: PolicyChange) -> Result<(), String> {
        let newest = self.stored.policy.iter().map(|change| change.version).max().unwrap_or(0);
        if !(0..=newest.saturating_add(1)).contains(&change.version) {
            return Err(format!("policy version {} comes after version {newest}", change.version));
        }
        self.stored.policy.push(change);
        Ok(())
    }

    fn trial(&mut self, id: &TrialId) -> Result<&mut StoredTrial, String> {
        let found = self.by_id.get(id).and_then(|&index| self.stored.trials.get_mut(index));
        found.ok_or_else(|| format!("trial {id} was never opened"))
    }
}

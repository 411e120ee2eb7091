//! The way back: trials out of a data directory.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rolltap_rollout::call::Call;
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::rollout::{Reward, TrialFacts};

use super::record::{MAGIC, Next, Records};
use super::{CALL, EVENT, Event, FILE_NAME, Opened, PolicyChange, call_record};

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

/// Bytes that are no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} at byte {at}: {reason}", path.display())]
pub struct Damage {
    /// The event file.
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
    let mut reader = BufReader::with_capacity(1 << 20, file);
    match check_magic(&mut reader) {
        // What a process leaves that dies before it has written anything.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Stored::default()),
        magic => magic.map_err(failed)?,
    }
    let mut reading = Reading::default();
    let mut records = Records::new(reader, MAGIC.len() as u64);
    let mut content = Vec::new();
    loop {
        let at = records.position();
        let (reason, is_torn_end) = match records.next(&mut content).map_err(failed)? {
            Next::End => break,
            Next::Record => match reading.take(at, &content) {
                Ok(()) => continue,
                Err(reason) => (reason, false),
            },
            Next::Damage(reason) => (reason, false),
            Next::TornEnd => ("the last record was half written".to_owned(), true),
        };
        reading.stored.damage.push(Damage { path: path.clone(), at, reason, is_torn_end });
        if is_torn_end {
            break;
        }
    }
    Ok(reading.stored)
}

/// Reads the beginning of an event file.
pub(super) fn check_magic(file: &mut impl Read) -> io::Result<()> {
    let mut begin = [0; MAGIC.len()];
    file.read_exact(&mut begin)?;
    let [name @ .., version] = begin;
    let [our_name @ .., our_version] = MAGIC;
    let wrong = |what: String| io::Error::new(ErrorKind::InvalidData, what);
    if name != our_name {
        return Err(wrong("it is no capture file of rolltap".to_owned()));
    }
    if version != our_version {
        let what = format!("its format is version {version}, this rolltap reads version {our_version}");
        return Err(wrong(what));
    }
    Ok(())
}

#[derive(Default)]
struct Reading {
    stored: Stored,
    by_id: HashMap<TrialId, usize>,
    /// By where its record begins.
    calls: HashMap<u64, Arc<Call>>,
}

impl Reading {
    fn take(&mut self, at: u64, content: &[u8]) -> Result<(), String> {
        match content.split_first() {
            Some((&EVENT, json)) => {
                self.take_event(serde_json::from_slice(json).map_err(|error| error.to_string())?)
            }
            Some((&CALL, bytes)) => {
                let earlier = |distance| self.calls.get(&at.checked_sub(distance)?).cloned();
                let call = Arc::new(call_record::read(bytes, earlier)?);
                self.calls.insert(at, Arc::clone(&call));
                self.take_event(Event::Call(call))
            }
            Some((kind, _)) => Err(format!("a record of kind {kind}, which this rolltap does not know")),
            None => Err("a record without content".to_owned()),
        }
    }

    fn take_event(&mut self, event: Event) -> Result<(), String> {
        match event {
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

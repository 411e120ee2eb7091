//! Scans a data directory at start-up. Finds each trial and the positions of its calls without decoding the calls.

mod record;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rolltap_rollout::call::Call;
use rolltap_rollout::ids::{CallId, TrialId};
use rolltap_rollout::rollout::TrialRewards;

use super::index::{At, Index};
use crate::store::format::content::{Content, Kind, TrialNumber};
use crate::store::format::event::{Completion, Event, GroupClosed, Opened, PolicyChange};
use crate::store::format::record::{Next, Records};
use crate::store::format::segment::{self, Format, HEAD, SegmentId};
use crate::store::format::varint::Numbers;
use crate::store::read::recovery::record::{BadRecord, Intent};
use crate::store::write::encoder::Mark;
use crate::store::{Damage, ReadError, Summary};

/// The content of a data directory.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Every trial, in the order in which they were opened.
    pub(crate) trials: Vec<RecoveredTrial>,
    pub(crate) policy: Vec<PolicyChange>,
    /// The closed groups, in the order in which they closed.
    pub(crate) closed_groups: Vec<GroupClosed>,
    /// The highest number of a completion or closing. The highest feed number of a trial whose retention is over.
    pub(crate) last_sequence: u64,
    /// The highest number of a trial whose retention is over.
    pub(crate) forgotten_through: u64,
    pub(crate) index: Index,
    /// Calls with an intent, but without a record.
    pub(crate) unfinished: Vec<Unfinished>,
    /// The damaged parts, which were skipped.
    pub(crate) damage: Vec<Damage>,
    /// The last segment, and the offset of its next record. `None` if no segment can be appended to.
    pub(crate) last: Option<(SegmentId, u64)>,
    /// The segment with the highest number.
    pub(crate) latest: Option<SegmentId>,
}

/// A trial without its calls.
#[derive(Clone, Debug)]
pub(crate) struct RecoveredTrial {
    pub(crate) opened: Opened,
    /// The time of the seal, or `None` if the trial is open.
    pub(crate) sealed_at: Option<Timestamp>,
    pub(crate) summary: Option<Summary>,
    pub(crate) rewards: TrialRewards,
    pub(crate) completion: Option<Completion>,
}

/// A call that was in flight when the process ended.
#[derive(Clone, Debug)]
pub(crate) struct Unfinished {
    pub(crate) trial_id: TrialId,
    pub(crate) call_id: CallId,
    pub(crate) at: Timestamp,
}

/// Scans a data directory. The result is empty if the directory does not exist.
pub(crate) fn scan(dir: &Path) -> Result<Scan, ReadError> {
    let failed = |path: PathBuf| move |source| ReadError { path, source };
    let segments = segment::list(dir).map_err(failed(dir.to_owned()))?;
    let mut scanner = Scanner::default();
    scanner.scan.latest = segments.last().copied();
    for &id in &segments {
        let path = id.path(dir);
        scanner.segment(id, &path).map_err(failed(path))?;
    }
    Ok(scanner.finish())
}

#[derive(Default)]
struct Scanner {
    scan: Scan,
    by_id: HashMap<TrialId, usize>,
    /// The indices of trials that are forgotten or withdrawn.
    forgotten: HashSet<usize>,
    /// Possible damage. A later event can show that it belongs to forgotten trials and is expected.
    doubts: Vec<(BadRecord, Damage)>,
    /// The marks of calls whose records were read.
    ended: HashSet<Mark>,
    intents: HashMap<Mark, Intent>,
}

impl Scanner {
    fn segment(&mut self, id: SegmentId, path: &Path) -> io::Result<()> {
        let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
        // Only the last segment is appended to, and only if its head is valid.
        self.scan.last = None;
        let Some(format) = segment::read_head(&mut file)? else { return Ok(()) };
        let mut records = Records::new(file, HEAD);
        let mut content = Vec::new();
        let is_torn = loop {
            let at = At { segment: id, offset: records.position() };
            let reason = match records.next(&mut content)? {
                Next::End => break false,
                Next::TornEnd => break true,
                Next::Damage(reason) => reason,
                Next::Record => match self.take(at, format, &content) {
                    Ok(()) => continue,
                    Err(wrong) => {
                        let damage = damage(path, at.offset, wrong.reason());
                        self.doubts.push((wrong, damage));
                        continue;
                    }
                },
            };
            self.scan.damage.push(damage(path, at.offset, reason));
        };
        if is_torn {
            let torn = damage(path, records.position(), "the last record was half written".to_owned());
            self.scan.damage.push(Damage { is_torn_end: true, ..torn });
        }
        // A segment of an earlier format is never appended to.
        if format == Format::V3 {
            self.scan.last = Some((id, records.position()));
        }
        Ok(())
    }

    fn take(&mut self, at: At, format: Format, content: &[u8]) -> Result<(), BadRecord> {
        if format == Format::V1 {
            return self.take_v1(at, content);
        }
        let content = Content::read(content)?;
        self.scan.index.is_used(content.trial);
        self.scan.index.is_in(at.segment, content.trial);
        match content.kind {
            Kind::Text => Ok(()),
            Kind::Event => {
                let event = serde_json::from_slice(&content.body()?).map_err(|error| error.to_string())?;
                self.take_event(at.segment, event, content.trial)
            }
            Kind::Call => {
                let (mark, _) = content.split_plain()?;
                self.intents.remove(&mark);
                // A write that was retried after a disk error may have left the record twice.
                if self.ended.insert(mark) {
                    self.scan.index.add_call(content.trial, at);
                }
                Ok(())
            }
            Kind::Intent => {
                let (mark, rest) = content.split_plain()?;
                let body = rest.body()?;
                let intent =
                    Intent::read(content.trial, mark, &body).ok_or("an intent that cannot be read")?;
                // A retried write may also repeat an intent after its record.
                if !self.ended.contains(&mark) {
                    self.intents.insert(mark, intent);
                }
                Ok(())
            }
        }
    }

    /// Reads a record of the first format. Its first byte is 1 before an event in JSON, and 2 before a call.
    fn take_v1(&mut self, at: At, content: &[u8]) -> Result<(), BadRecord> {
        match content.split_first() {
            Some((1, json)) => {
                let event: Event = serde_json::from_slice(json).map_err(|error| error.to_string())?;
                let number = event.trial_id().map(|trial| self.scan.index.number(trial)).unwrap_or_default();
                self.scan.index.is_in(at.segment, number);
                self.take_event(at.segment, event, number)
            }
            Some((2, call)) => {
                let mut numbers = Numbers::of(call);
                let small = numbers.number().and_then(|length| numbers.bytes(length));
                let small = small.ok_or("the record of a call ends too early")?;
                let call: Call = serde_json::from_slice(small).map_err(|error| error.to_string())?;
                let number = self.scan.index.number(&call.trial_id);
                self.scan.index.is_in(at.segment, number);
                self.scan.index.add_call(number, at);
                Ok(())
            }
            Some((kind, _)) => {
                Err(format!("a record of kind {kind}, which this rolltap does not know").into())
            }
            None => Err("a record without content".into()),
        }
    }

    fn take_event(&mut self, segment: SegmentId, event: Event, number: TrialNumber) -> Result<(), BadRecord> {
        match event {
            Event::Opened(opened) => self.open(*opened, number)?,
            Event::Withdrawn { trial_id } => {
                // The name is free again: a later trial may be opened under it.
                self.scan.index.forget(std::slice::from_ref(&trial_id), &[]);
                self.forgotten.extend(self.by_id.remove(&trial_id));
            }
            Event::Undelivered { call_id, .. } => self.scan.index.is_undelivered(number, call_id),
            Event::Policy(change) => self.policy(change)?,
            Event::Forgotten { trials, policy, sequence, through } => {
                self.scan.last_sequence = self.scan.last_sequence.max(sequence);
                self.scan.forgotten_through = self.scan.forgotten_through.max(through);
                self.forget(&trials, policy);
            }
            Event::Summed { trial_id, summary } => self.trial(&trial_id)?.summary = Some(summary),
            Event::Sealed { trial_id, at } => {
                self.scan.index.is_sealed(number, at);
                self.trial(&trial_id)?.sealed_at = Some(at);
            }
            Event::Rewarded { trial_id, reward } | Event::Regraded { trial_id, reward } => {
                self.trial(&trial_id)?.rewards.add(reward);
            }
            Event::Completed { trial_id, completion } => {
                // A retried write may repeat a completion, which is not damage.
                if self.trial(&trial_id)?.completion != Some(completion) {
                    self.follows(completion.sequence)?;
                    self.trial(&trial_id)?.completion = Some(completion);
                    self.scan.index.is_complete(number, completion);
                }
            }
            Event::GroupClosed(closed) => {
                if !self.scan.closed_groups.contains(&closed) {
                    self.follows(closed.sequence)?;
                    self.scan.index.is_closed(segment, &closed.group_id, closed.at);
                    self.scan.closed_groups.push(closed);
                }
            }
            Event::Intent { .. }
            | Event::Call(_)
            | Event::Batch(_)
            | Event::Flush
            | Event::Evicted { .. }
            | Event::Reloaded { .. } => {}
        }
        Ok(())
    }

    /// Checks that feed numbers grow. Readers use them as cursors, and would miss a trial if a number were given twice.
    fn follows(&mut self, sequence: u64) -> Result<(), BadRecord> {
        if sequence <= self.scan.last_sequence {
            let last = self.scan.last_sequence;
            return Err(format!("number {sequence} of the feed comes after {last}").into());
        }
        self.scan.last_sequence = sequence;
        Ok(())
    }

    fn open(&mut self, opened: Opened, number: TrialNumber) -> Result<(), BadRecord> {
        let trial_id = opened.facts.trial_id.clone();
        if let Some(known) = self.by_id.get(&trial_id).and_then(|&index| self.scan.trials.get(index)) {
            // A retried write may repeat an opening. The key is the same then.
            let is_same = known.opened.key == opened.key;
            return if is_same {
                Ok(())
            } else {
                Err(format!("trial {trial_id} is opened a second time").into())
            };
        }
        self.scan.index.is(trial_id.clone(), number);
        opened.facts.group_id.iter().for_each(|group| self.scan.index.is_of_group(number, group));
        self.by_id.insert(trial_id, self.scan.trials.len());
        self.scan.trials.push(RecoveredTrial {
            opened,
            sealed_at: None,
            summary: None,
            rewards: TrialRewards::default(),
            completion: None,
        });
        Ok(())
    }

    fn forget(&mut self, trials: &[TrialId], policy: Vec<PolicyChange>) {
        // The event contains all policy versions so far, because some of their segments may be removed.
        self.scan.policy = policy;
        self.scan.index.forget(trials, &[]);
        self.forgotten.extend(trials.iter().filter_map(|trial| self.by_id.remove(trial)));
        let trials: HashSet<_> = trials.iter().collect();
        // Leftover records of forgotten trials, and gaps among the earlier policy versions, are expected.
        self.doubts.retain(|(wrong, _)| match wrong {
            BadRecord::Unreadable(_) => true,
            BadRecord::Unopened(trial) => !trials.contains(trial),
            BadRecord::Policy(_) => false,
        });
    }

    fn policy(&mut self, change: PolicyChange) -> Result<(), BadRecord> {
        let newest = self.scan.policy.iter().map(|change| change.version).max().unwrap_or(0);
        if !(0..=newest.saturating_add(1)).contains(&change.version) {
            let reason = format!("policy version {} comes after version {newest}", change.version);
            return Err(BadRecord::Policy(reason));
        }
        self.scan.policy.push(change);
        Ok(())
    }

    fn trial(&mut self, id: &TrialId) -> Result<&mut RecoveredTrial, BadRecord> {
        let found = self.by_id.get(id).and_then(|&index| self.scan.trials.get_mut(index));
        found.ok_or_else(|| BadRecord::Unopened(id.clone()))
    }

    fn finish(mut self) -> Scan {
        let names: HashMap<TrialNumber, &TrialId> =
            self.by_id.keys().map(|id| (self.scan.index.number_of(id), id)).collect();
        let mut unfinished: Vec<_> = self
            .intents
            .into_values()
            // Intents of forgotten trials have no name and are dropped.
            .filter_map(|Intent { trial, call_id, at }| {
                Some(Unfinished { trial_id: (*names.get(&trial)?).clone(), call_id, at })
            })
            .collect();
        unfinished.sort_by(|a, b| a.call_id.cmp(&b.call_id));
        self.scan.unfinished = unfinished;
        self.scan.damage.extend(self.doubts.into_iter().map(|(_, damage)| damage));
        self.scan.damage.sort_by(|a, b| (&a.path, a.at).cmp(&(&b.path, b.at)));
        let mut place = 0;
        self.scan.trials.retain(|_| {
            place += 1;
            !self.forgotten.contains(&(place - 1))
        });
        self.scan
    }
}

fn damage(path: &Path, at: u64, reason: String) -> Damage {
    Damage { path: path.to_owned(), at, reason, is_torn_end: false }
}

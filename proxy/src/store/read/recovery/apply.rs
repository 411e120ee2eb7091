//! Applies records to the state of a scan.

use std::collections::HashSet;

use rolltap_rollout::call::Call;
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::rollout::TrialRewards;

use super::RecoveredTrial;
use super::record::{BadRecord, Intent};
use super::scanner::Scanner;
use crate::store::format::content::{Content, Kind, TrialNumber};
use crate::store::format::event::{Event, Opened, PolicyChange};
use crate::store::format::note::add_pause;
use crate::store::format::segment::{Format, SegmentId};
use crate::store::format::varint::Numbers;
use crate::store::read::index::At;

impl Scanner {
    /// Applies the content of one record.
    pub(super) fn take(&mut self, at: At, format: Format, content: &[u8]) -> Result<(), BadRecord> {
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
            Event::Paused(pause) => add_pause(&mut self.scan.pauses, pause),
            Event::Noted { trial_id, note } => {
                let trial = self.trial(&trial_id)?;
                // A retried write may repeat a note.
                if !trial.notes.contains(&note) {
                    trial.notes.push(note);
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
            notes: Vec::new(),
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
}

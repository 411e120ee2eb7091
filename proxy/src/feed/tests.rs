//! The ledger without store or clock. The tests deliver the same events as the clerk does.

mod durable;
mod groups;
mod properties;

use jiff::Timestamp;
use rolltap_rollout::ids::{GroupId, TaskId, TrialId};
use rolltap_rollout::rollout::TrialFacts;
use rolltap_rollout::training::TrainingPolicy;

use super::cursor::Cursor;
use super::ledger::{Delivery, KeptTrial, Ledger};
use super::schedule::Due;
use crate::api::{ClosingCause, Limits};
use crate::common::history::History;
use crate::common::model_aliases::ModelAliases;
use crate::common::seconds::Seconds;
use crate::common::trial_key::TrialKey;
use crate::store::{Completion, GroupClosed, Opened};

/// A ledger, and the events that the store would hold.
#[derive(Debug, Default)]
struct Scene {
    ledger: Ledger,
    now: i64,
    kept: Vec<StoredTrial>,
    closed_groups: Vec<GroupClosed>,
    given: u64,
}

#[derive(Debug)]
struct StoredTrial {
    opened: Opened,
    sealed_at: Option<Timestamp>,
    is_rewarded: bool,
    completion: Option<Completion>,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn id(name: &str) -> TrialId {
    TrialId::new(name).unwrap()
}

fn group(name: &str) -> GroupId {
    GroupId::new(name).unwrap()
}

/// Returns a trial of one task. `place` is its group, sample and attempt.
pub(crate) fn trial(name: &str, place: (Option<&str>, u32, u32)) -> Opened {
    let (group_id, sample_index, attempt) = place;
    Opened {
        facts: TrialFacts {
            trial_id: id(name),
            task_id: TaskId::new("task").unwrap(),
            group_id: group_id.map(group),
            group_size: None,
            sample_index,
            attempt,
            agent: None,
            environment: None,
            model: None,
            logprobs_mode: "raw_logprobs".to_owned(),
            tokenizer_hash: None,
            vocab_size: None,
            training: TrainingPolicy::default(),
        },
        key: TrialKey::generate().unwrap().hash(),
        sampling: serde_json::Map::new(),
        seed: None,
        model_aliases: ModelAliases::default(),
        history: History::default(),
        limits: Limits::default(),
        reward_deadline: None,
        group_deadline: None,
        hold_group: false,
        traceparent: None,
        metadata: serde_json::Map::new(),
        at: at(0),
    }
}

fn seconds(seconds: f64) -> Option<Seconds> {
    Some(seconds.try_into().unwrap())
}

impl Scene {
    fn open(&mut self, opened: Opened) -> Result<(), String> {
        self.ledger.check(&opened).map_err(|refused| refused.to_string())?;
        self.ledger.opened(&opened);
        self.kept.push(StoredTrial { opened, sealed_at: None, is_rewarded: false, completion: None });
        Ok(())
    }

    fn seal(&mut self, name: &TrialId) {
        let now = at(self.now);
        self.ledger.sealed(name, now);
        self.stored_trial(name).sealed_at.get_or_insert(now);
    }

    fn reward(&mut self, name: &TrialId) {
        self.ledger.rewarded(name);
        self.stored_trial(name).is_rewarded = true;
    }

    fn stored_trial(&mut self, name: &TrialId) -> &mut StoredTrial {
        self.kept.iter_mut().find(|told| told.opened.facts.trial_id == *name).unwrap()
    }

    /// Seals and rewards the trial.
    fn end(&mut self, name: &str) {
        self.seal(&id(name));
        self.reward(&id(name));
    }

    /// Does the clerk's work until nothing is due.
    fn settle(&mut self) {
        while let Some(due) = self.ledger.due(at(self.now)) {
            match due {
                Due::Completions(trials) => trials.iter().for_each(|trial| self.complete(trial)),
                Due::Closing(group_id, cause) => {
                    let sequence = self.number();
                    let closed = GroupClosed { group_id, sequence, cause, at: at(self.now) };
                    self.ledger.closed(closed.clone());
                    self.closed_groups.push(closed);
                }
                Due::RewardMissed(trial) => self.reward(&trial),
            }
        }
    }

    fn complete(&mut self, trial: &TrialId) {
        let completion = Completion { sequence: self.number(), at: at(self.now) };
        self.ledger.completed(trial, completion);
        assert!(
            self.stored_trial(trial).completion.replace(completion).is_none(),
            "{trial} is complete once"
        );
    }

    fn number(&mut self) -> u64 {
        self.given += 1;
        self.given
    }

    /// Returns the ledger that a process would have if it started now.
    fn retold(&self) -> Ledger {
        let kept = |told: &StoredTrial| (told.sealed_at, told.is_rewarded, told.completion);
        let kept: Vec<_> = self
            .kept
            .iter()
            .map(|told| {
                let (sealed_at, is_rewarded, completion) = kept(told);
                KeptTrial { opened: &told.opened, sealed_at, is_rewarded, completion }
            })
            .collect();
        Ledger::retold(&kept, &self.closed_groups, 0, 0)
    }

    /// Reads from `cursor` until the feed ends, and moves `cursor` there.
    fn read(&self, cursor: &mut Cursor, with_superseded: bool) -> Vec<Delivery> {
        let mut read = Vec::new();
        while let Some(next) = self.ledger.next(*cursor, with_superseded) {
            *cursor = next.cursor;
            read.push(next);
        }
        read
    }

    /// Returns the names of all trials that a new reader gets.
    fn names(&self, closed_groups: bool) -> Vec<String> {
        let read = self.read(&mut Cursor::begin(closed_groups), false);
        read.into_iter().map(|next| next.trial.to_string()).collect()
    }
}

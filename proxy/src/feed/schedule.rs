//! The consequences that are due, and the deadlines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use rolltap_rollout::ids::{GroupId, TrialId};

use crate::api::ClosingCause;

/// The maximum number of completions that are written together.
const TOGETHER: usize = 64;

/// A consequence that is written to the store, and then applied to the [`super::Ledger`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// These trials are sealed and rewarded, so they become complete in this order.
    Completions(Vec<TrialId>),
    /// The group accepts no further trial.
    Closing(GroupId, ClosingCause),
    /// The deadline of this trial's reward has passed.
    RewardMissed(TrialId),
}

/// The subject of a deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deadline {
    Reward(TrialId),
    Group(GroupId),
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Schedule {
    ready: VecDeque<TrialId>,
    closing: BTreeMap<GroupId, ClosingCause>,
    deadlines: BTreeSet<(Timestamp, Deadline)>,
}

impl Schedule {
    /// Returns the next consequence: first completions, then closings, then passed deadlines in their order. So a proxy
    /// that was not running at a deadline gets the same result as a proxy that was.
    pub(super) fn due(&self, now: Timestamp) -> Option<Due> {
        // Completions come before closings, so that a closing group releases all trials that are ready.
        if !self.ready.is_empty() {
            return Some(Due::Completions(self.ready.iter().take(TOGETHER).cloned().collect()));
        }
        if let Some((group, &cause)) = self.closing.first_key_value() {
            return Some(Due::Closing(group.clone(), cause));
        }
        let (_, deadline) = self.deadlines.first().filter(|(at, _)| *at <= now)?;
        Some(match deadline {
            Deadline::Reward(trial) => Due::RewardMissed(trial.clone()),
            Deadline::Group(group) => Due::Closing(group.clone(), ClosingCause::Deadline),
        })
    }

    /// Returns the time of the next deadline.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(super) fn complete(&mut self, trial: &TrialId) {
        self.ready.push_back(trial.clone());
    }

    pub(super) fn completed(&mut self, trial: &TrialId) {
        match self.ready.front() {
            // Completions are normally written in order, so the first entry is tried before the scan.
            Some(first) if first == trial => drop(self.ready.pop_front()),
            _ => self.ready.retain(|ready| ready != trial),
        }
    }

    /// Schedules the closing of a group. The first cause counts.
    pub(super) fn close(&mut self, group: &GroupId, cause: ClosingCause) {
        self.closing.entry(group.clone()).or_insert(cause);
    }

    /// Returns the cause if the closing of the group is due.
    pub(super) fn closes(&self, group: &GroupId) -> Option<ClosingCause> {
        self.closing.get(group).copied()
    }

    pub(super) fn closed(&mut self, group: &GroupId) {
        self.closing.remove(group);
    }

    pub(super) fn wait(&mut self, until: Option<Timestamp>, deadline: Deadline) {
        self.deadlines.extend(until.map(|until| (until, deadline)));
    }

    pub(super) fn wait_no_more(&mut self, until: Option<Timestamp>, deadline: Deadline) {
        if let Some(until) = until {
            self.deadlines.remove(&(until, deadline));
        }
    }
}

//! What is due next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use rolltap_rollout::ids::{GroupId, TrialId};

use crate::api::ClosingCause;

/// Completions that are kept together, at most.
const TOGETHER: usize = 64;

/// Something to be kept, and then told to the [`super::Ledger`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// These are sealed and have their rewards: they are complete, in this order.
    Completions(Vec<TrialId>),
    /// No further trial of this group.
    Closing(GroupId, ClosingCause),
    /// This trial gets no reward any more.
    RewardMissed(TrialId),
}

/// What passes at a time.
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
    /// What comes first: what is due by itself, then deadlines that have passed, in their order. So a proxy that slept
    /// through several does what it would have done awake.
    pub(super) fn due(&self, now: Timestamp) -> Option<Due> {
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

    /// When the next deadline passes.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(super) fn complete(&mut self, trial: &TrialId) {
        self.ready.push_back(trial.clone());
    }

    pub(super) fn completed(&mut self, trial: &TrialId) {
        match self.ready.front() {
            Some(first) if first == trial => drop(self.ready.pop_front()),
            _ => self.ready.retain(|ready| ready != trial),
        }
    }

    /// The first cause counts.
    pub(super) fn close(&mut self, group: &GroupId, cause: ClosingCause) {
        self.closing.entry(group.clone()).or_insert(cause);
    }

    /// Why the group is about to close.
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

//! What the ledger tells: the next trial for a reader, and how trials and groups stand.

use jiff::Timestamp;
use rolltap_rollout::ids::{GroupId, TrialId};

use super::{Entry, Ledger};
use crate::api::{GroupClosing, GroupStatus, SampleCounts};
use crate::common::metrics::Counts;
use crate::common::samples::{AttemptStanding, Sample};
use crate::feed::cursor::Cursor;
use crate::feed::group::Group;

/// A complete trial that a reader gets next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) cursor: Cursor,
    pub(crate) trial: TrialId,
    pub(crate) superseded: bool,
    pub(crate) completed_at: Timestamp,
    /// Of a trial with a group, where the reader reads closed groups.
    pub(crate) of_group: Option<OfGroup>,
}

/// A trial's place in what is delivered of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OfGroup {
    /// How many of the group follow.
    pub(crate) remaining: u64,
    /// Complete only after the group had closed.
    pub(crate) late: bool,
}

impl Ledger {
    /// The last number that a completion or closing has; 0 before the first.
    pub(crate) fn last(&self) -> u64 {
        self.order.last()
    }

    /// The newest number that a trial had whose retention is over; 0 where there is none.
    pub(crate) fn forgotten_through(&self) -> u64 {
        self.forgotten_through
    }

    /// The next trial for a reader at `cursor`.
    pub(crate) fn next(&self, cursor: Cursor, with_superseded: bool) -> Option<Delivery> {
        let mut behind = self.deliverable(cursor, with_superseded);
        let (cursor, trial, entry) = behind.next()?;
        let of_group = match (cursor, &entry.group) {
            (Cursor::Releases(release), Some(group)) => {
                let follows = |(cursor, _, other): &(Cursor, &TrialId, &Entry)| {
                    matches!(cursor, Cursor::Releases(next) if next.released == release.released)
                        && other.group.as_ref() == Some(group)
                };
                let remaining = behind.take_while(follows).count() as u64;
                Some(OfGroup { remaining, late: release.released == release.completed })
            }
            _ => None,
        };
        let completed_at = entry.completion?.at;
        let superseded = self.is_superseded(trial, entry);
        Some(Delivery { cursor, trial: trial.clone(), superseded, completed_at, of_group })
    }

    /// How a trial stands among others.
    pub(crate) fn standing(&self, trial: &TrialId) -> AttemptStanding {
        let Some(entry) = self.trials.get(trial) else { return AttemptStanding::default() };
        AttemptStanding {
            superseded: self.is_superseded(trial, entry),
            completed_at: entry.completion.map(|completion| completion.at),
        }
    }

    /// Every group, by name.
    pub(crate) fn groups(&self) -> Vec<GroupStatus> {
        self.groups.iter().map(|(id, group)| self.status(id, group)).collect()
    }

    /// How a group stands.
    pub(crate) fn group(&self, id: &GroupId) -> Option<GroupStatus> {
        self.groups.get(id).map(|group| self.status(id, group))
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            trials_open: self.trials.len().saturating_sub(self.sealed),
            trials_sealed: self.sealed.saturating_sub(self.order.complete()),
            trials_complete: self.order.complete(),
            groups_open: self.groups.len().saturating_sub(self.closed_groups),
            groups_closed: self.closed_groups,
        }
    }

    fn deliverable(
        &self,
        cursor: Cursor,
        with_superseded: bool,
    ) -> impl Iterator<Item = (Cursor, &TrialId, &Entry)> {
        self.order.after(cursor).filter_map(move |(cursor, trial)| {
            let entry = self.trials.get(trial)?;
            let counts = with_superseded || !self.is_superseded(trial, entry);
            counts.then_some((cursor, trial, entry))
        })
    }

    pub(super) fn sample_counts(&self, id: &GroupId, group: &Group) -> SampleCounts {
        let mut counts = SampleCounts::default();
        for &index in &group.samples {
            let sample = Sample::of_group(id, index);
            let trials = || self.samples.counting(&sample).filter_map(|trial| self.trials.get(trial));
            // Captures of before attempts were told apart may have several trials in the place of one.
            if trials().any(|trial| trial.completion.is_some()) {
                counts.complete += 1;
            } else if trials().any(|trial| trial.sealed_at.is_some()) {
                counts.sealed += 1;
            } else {
                counts.open += 1;
            }
        }
        counts
    }

    fn status(&self, id: &GroupId, group: &Group) -> GroupStatus {
        let trials =
            group.samples.iter().map(|&index| self.samples.all(&Sample::of_group(id, index)).count());
        GroupStatus {
            group_id: id.clone(),
            size: group.size,
            samples: self.sample_counts(id, group),
            trials: trials.sum::<usize>() as u64,
            deadline_at: group.deadline_at(),
            closed: group.closed.as_ref().map(|closed| GroupClosing { cause: closed.cause, at: closed.at }),
        }
    }
}

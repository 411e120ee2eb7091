//! Queries of the ledger: the next trial for a reader, and the state of trials and groups.

use jiff::Timestamp;
use rolltap_rollout::ids::{GroupId, TrialId};

use super::{Entry, Ledger};
use crate::api::{GroupClosing, GroupStatus, SampleCounts};
use crate::common::metrics::Counts;
use crate::common::samples::{AttemptStanding, Sample};
use crate::feed::cursor::Cursor;
use crate::feed::group::Group;

/// The next complete trial for a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) cursor: Cursor,
    pub(crate) trial: TrialId,
    pub(crate) superseded: bool,
    pub(crate) completed_at: Timestamp,
    /// Present if the trial has a group and the reader reads closed groups.
    pub(crate) of_group: Option<OfGroup>,
}

/// A trial's place among the delivered trials of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OfGroup {
    /// The number of trials of the group that follow.
    pub(crate) remaining: u64,
    /// Whether the trial became complete after the group had closed.
    pub(crate) late: bool,
}

impl Ledger {
    /// Returns the last number of a completion or closing, or 0 before the first.
    pub(crate) fn last(&self) -> u64 {
        self.order.last()
    }

    /// Returns the highest number of a trial whose retention is over, or 0 if there is none.
    pub(crate) fn forgotten_through(&self) -> u64 {
        self.forgotten_through
    }

    /// Returns the next trial for a reader at `cursor`.
    pub(crate) fn next(&self, cursor: Cursor, with_superseded: bool) -> Option<Delivery> {
        let mut behind = self.deliverable(cursor, with_superseded);
        let (cursor, trial, entry) = behind.next()?;
        let of_group = match (cursor, &entry.group) {
            (Cursor::Releases(release), Some(group)) => {
                // The trials that a closing released share its number, and follow one another.
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

    /// Returns the standing of a trial among the attempts at its sample.
    pub(crate) fn standing(&self, trial: &TrialId) -> AttemptStanding {
        let Some(entry) = self.trials.get(trial) else { return AttemptStanding::default() };
        AttemptStanding {
            superseded: self.is_superseded(trial, entry),
            completed_at: entry.completion.map(|completion| completion.at),
        }
    }

    /// Returns the status of every group, by name.
    pub(crate) fn groups(&self) -> Vec<GroupStatus> {
        self.groups.iter().map(|(id, group)| self.status(id, group)).collect()
    }

    /// Returns the status of a group.
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
            // Captures of versions without attempts may have several trials for one sample.
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

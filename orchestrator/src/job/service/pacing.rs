//! Staleness pacing: which groups may begin, and in which order closed groups are released.
//!
//! A trainer takes `groups_per_step` groups per policy version, in the order of the feed, so the place of a group in that
//! order determines the version at which it is taken. A group whose first sample began under version `v` must be taken at
//! version `v + max_staleness` at the latest. New groups are held back while the places that they could take are all
//! promised; running groups are never cancelled. The capacity is that of AReaL's staleness control.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use rolltap_rollout::ids::GroupId;
use serde::{Deserialize, Serialize};

/// The budget of staleness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The largest age of a group when it is taken, in policy versions.
    pub max_staleness: u32,
    /// The number of groups that a step of the trainer takes.
    pub groups_per_step: NonZeroU64,
}

/// The count of released groups, from which the version follows at which each is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// The policy version at which the first of them is taken.
    pub(super) base: i32,
    pub(super) released: u64,
    pub(super) groups_per_step: NonZeroU64,
}

/// The groups that have begun, or may begin, and are not released.
#[derive(Debug)]
pub(super) struct Window {
    pace: Pace,
    /// The policy version at which the first released group is taken.
    base: i64,
    /// The number of released groups.
    released: u64,
    /// The current policy version.
    current: i64,
    /// The number of groups that were admitted so far.
    admitted: u64,
    /// By the order of admission.
    open: BTreeMap<u64, OpenGroup>,
}

#[derive(Debug)]
struct OpenGroup {
    id: GroupId,
    /// The policy version when its first sample began. While none has begun, the version of its admission.
    version: i64,
    has_begun: bool,
    /// Whether each sample has ended.
    is_ready: bool,
}

/// What to do with a group that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// The group is the next that the trainer takes.
    Next(GroupId),
    /// The group is older than the budget, and must not reach the trainer.
    TooOld(GroupId),
}

impl Window {
    /// Makes a window at a policy version, which continues the count of an earlier run. A count with another number of
    /// groups per step begins anew.
    pub(super) fn new(pace: Pace, earlier: Option<Position>, current: i32) -> Self {
        let earlier = earlier.filter(|earlier| earlier.groups_per_step == pace.groups_per_step);
        let Position { base, released, .. } =
            earlier.unwrap_or(Position { base: current, released: 0, groups_per_step: pace.groups_per_step });
        let base = i64::from(base);
        let mut window = Self { pace, base, released, current: base, admitted: 0, open: BTreeMap::new() };
        window.follow(i64::from(current));
        window
    }

    /// Returns the count that [`Self::new`] continues.
    pub(super) fn position(&self) -> Position {
        let base = i32::try_from(self.base).unwrap_or(i32::MAX);
        Position { base, released: self.released, groups_per_step: self.pace.groups_per_step }
    }

    /// Sets the current policy version.
    pub(super) fn changed(&mut self, current: i32) {
        self.follow(i64::from(current));
    }

    fn follow(&mut self, current: i64) {
        if current < self.current {
            // The trainer names earlier weights again, so the steps are counted anew.
            (self.base, self.released) = (current, 0);
        }
        self.current = current;
        let steps = i64::try_from(self.released / self.pace.groups_per_step).unwrap_or(i64::MAX);
        // A trainer that takes fewer groups per version than announced takes later places at later versions.
        self.base = self.base.max(current.saturating_sub(steps));
    }

    /// Whether another group may begin.
    pub(super) fn has_room(&self) -> bool {
        let taken = self.released.saturating_add(self.open.len() as u64);
        taken < self.places_up_to(self.current)
    }

    /// Adds a group that may begin.
    pub(super) fn admit(&mut self, id: GroupId) {
        let group = OpenGroup { id, version: self.current, has_begun: false, is_ready: false };
        self.open.insert(self.admitted, group);
        self.admitted += 1;
    }

    /// Adds a group that began under a version before a restart.
    pub(super) fn restore(&mut self, id: GroupId, version: i32) {
        self.admit(id.clone());
        if let Some(group) = self.group(&id) {
            (group.version, group.has_begun) = (i64::from(version), true);
        }
    }

    /// Notes that a sample of a group begins.
    pub(super) fn begun(&mut self, id: &GroupId) {
        let current = self.current;
        if let Some(group) = self.group(id).filter(|group| !group.has_begun) {
            (group.version, group.has_begun) = (current, true);
        }
    }

    /// Takes the place of a released group back, because no trial of it reaches a reader.
    pub(super) fn was_empty(&mut self) {
        self.released = self.released.saturating_sub(1);
    }

    /// Notes that each sample of a group has ended.
    pub(super) fn ready(&mut self, id: &GroupId) {
        if let Some(group) = self.group(id) {
            group.is_ready = true;
        }
    }

    /// Removes a group that takes no place: it is dropped, or was stopped.
    pub(super) fn remove(&mut self, id: &GroupId) {
        self.open.retain(|_, group| group.id != *id);
    }

    fn group(&mut self, id: &GroupId) -> Option<&mut OpenGroup> {
        self.open.values_mut().find(|group| group.id == *id)
    }

    /// Returns the number of places that are taken at the latest `max_staleness` versions after this version.
    fn places_up_to(&self, version: i64) -> u64 {
        let versions =
            version.saturating_sub(self.base).saturating_add(i64::from(self.pace.max_staleness) + 1);
        u64::try_from(versions).unwrap_or(0).saturating_mul(self.pace.groups_per_step.get())
    }

    /// Takes the next group to release, or to drop because it is too old. Groups are released in the order of their
    /// admission, except that a group that is ready passes those that still run, as long as each of these can still be
    /// taken in time.
    pub(super) fn take(&mut self) -> Option<Release> {
        let ready = || self.open.iter().filter(|(_, group)| group.is_ready);
        let is_too_old = |group: &OpenGroup| self.released >= self.places_up_to(group.version);
        if let Some((&at, _)) = ready().find(|(_, group)| is_too_old(group)) {
            return self.open.remove(&at).map(|group| Release::TooOld(group.id));
        }
        let in_order = ready().map(|(&at, _)| at).find(|&at| self.others_are_in_time(at));
        // A trainer that skipped a step leaves more groups than places: then no order keeps all deadlines.
        let next = in_order.or_else(|| self.earliest_of_too_many())?;
        let group = self.open.remove(&next)?;
        self.released += 1;
        Some(Release::Next(group.id))
    }

    /// Returns the ready group with the earliest deadline if not all groups can be taken in time. `None` if they can.
    fn earliest_of_too_many(&self) -> Option<u64> {
        if self.are_in_time(self.open.values(), self.released) {
            return None;
        }
        let ready = self.open.iter().filter(|(_, group)| group.is_ready);
        ready.min_by_key(|(at, group)| (group.version, **at)).map(|(at, _)| *at)
    }

    /// Whether all other groups can be taken in time if this one takes the next place.
    fn others_are_in_time(&self, next: u64) -> bool {
        let others = self.open.iter().filter(|(at, _)| **at != next).map(|(_, group)| group);
        self.are_in_time(others, self.released.saturating_add(1))
    }

    /// Whether these groups can be taken in time if they take the places from `first` on.
    fn are_in_time<'g>(&self, groups: impl Iterator<Item = &'g OpenGroup>, first: u64) -> bool {
        let mut ends: Vec<u64> = groups.map(|group| self.places_up_to(group.version)).collect();
        // The earliest deadline first: if any order keeps all deadlines, this one does.
        ends.sort_unstable();
        ends.into_iter().zip(first..).all(|(end, place)| place < end)
    }
}

#[cfg(test)]
mod tests;

//! The groups of a service: when their samples may begin, and when a complete group closes.
//!
//! Without a budget of staleness, groups begin in the order of the queue and close when they are complete. With a
//! budget, [`Window`] decides both.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use rolltap_proxy::api::DropCause;
use rolltap_rollout::ids::{GroupId, SubmissionId};
use tokio::time::Instant;

use super::log::SubmissionRecord;
use super::pacing::{Pace, Release, Window};
use super::run::Service;
use super::table::Table;
use crate::failure::chain;
use crate::job::stretch::Stretch;

/// The time after which a failed closing of a group is tried again.
const CLOSE_AGAIN: Duration = Duration::from_secs(2);

/// The groups that wait for the budget of staleness, and the rules for their release.
#[derive(Debug, Default)]
pub(super) struct GroupGate {
    /// `None` without a budget: then nothing waits.
    window: Option<Window>,
    /// Whether groups whose valid rewards are all equal are dropped.
    drops_uniform: bool,
    /// The groups that have not begun, in the order in which they begin.
    waiting: VecDeque<WaitingGroup>,
    /// Groups whose closing failed, and when it is tried again. No group is released before them.
    unclosed: VecDeque<(GroupId, Option<DropCause>)>,
    close_again_at: Option<Instant>,
}

/// A group that waits for the budget.
#[derive(Debug)]
struct WaitingGroup {
    id: GroupId,
    priority: i32,
    samples: Vec<Stretch>,
}

impl GroupGate {
    /// Makes the gate of a service whose earlier run left this table.
    pub(super) fn new(pace: Option<Pace>, drops_uniform: bool, table: &Table, current: i32) -> Self {
        let window = pace.map(|pace| Window::new(pace, table.position(), current));
        Self { window, drops_uniform, ..Self::default() }
    }

    /// Returns when a failed closing is tried again.
    pub(super) fn close_again_at(&self) -> Option<Instant> {
        self.close_again_at.filter(|_| !self.unclosed.is_empty())
    }

    /// Removes the waiting groups that are meant, and returns their samples.
    pub(super) fn remove_waiting(&mut self, is_meant: impl Fn(&GroupId) -> bool) -> Vec<Stretch> {
        let (removed, waiting): (VecDeque<_>, _) =
            std::mem::take(&mut self.waiting).into_iter().partition(|waiting| is_meant(&waiting.id));
        self.waiting = waiting;
        removed.into_iter().flat_map(|group| group.samples).collect()
    }

    /// Adds a group that has not begun, behind those of the same priority.
    pub(super) fn wait(&mut self, id: GroupId, samples: Vec<Stretch>, priority: i32) {
        // Most groups have the priority of the last one.
        let behind = self.waiting.iter().rev().take_while(|waiting| waiting.priority < priority).count();
        let at = self.waiting.len() - behind;
        self.waiting.insert(at, WaitingGroup { id, priority, samples });
    }
}

impl Service {
    /// Adds a group that began under a policy version before a restart, and queues the rest of its samples.
    pub(super) fn restore_group(&mut self, id: &GroupId, samples: Vec<Stretch>, priority: i32, version: i32) {
        if let Some(window) = &mut self.gate.window {
            window.restore(id.clone(), version);
        }
        samples.into_iter().for_each(|stretch| self.dispatcher.queue.push(stretch, priority));
    }

    /// Queues the waiting groups for which the budget has room.
    pub(super) fn admit_groups(&mut self) {
        while self.gate.window.as_ref().is_none_or(Window::has_room) {
            let Some(WaitingGroup { id, priority, samples }) = self.gate.waiting.pop_front() else { return };
            if let Some(window) = &mut self.gate.window {
                window.admit(id);
            }
            samples.into_iter().for_each(|stretch| self.dispatcher.queue.push(stretch, priority));
        }
    }

    /// Notes that a sample of a group begins.
    pub(super) async fn sample_begins(&mut self, group: &GroupId) {
        if let Some(window) = &mut self.gate.window {
            window.begun(group);
        }
        let Some(id) = self.table.begun(group) else { return };
        let (group_id, policy_version) = (group.clone(), *self.policy.borrow());
        let record = SubmissionRecord::GroupBegun { id, group_id, policy_version, at: Timestamp::now() };
        // The record is not synced: if the machine dies, the group only seems to begin later.
        self.write_or_apply(vec![record], false).await;
    }

    /// Closes a group whose samples have all ended, or lets it wait for its turn in [`Self::release_groups`].
    pub(super) async fn group_is_complete(&mut self, group: &GroupId) {
        if self.gate.drops_uniform && self.table.is_uniform(group) {
            self.drop_group(group, DropCause::Uniform).await;
        } else if let Some(window) = &mut self.gate.window {
            window.ready(group);
        } else {
            self.close_group(group, None).await;
        }
    }

    /// Drops a group that takes no place in the order of released groups.
    async fn drop_group(&mut self, group: &GroupId, cause: DropCause) {
        if let Some(window) = &mut self.gate.window {
            window.remove(group);
        }
        self.close_group(group, Some(cause)).await;
    }

    /// Releases the complete groups whose turn it is, and begins those for which there is room then.
    pub(super) async fn release_groups(&mut self) {
        while self.gate.unclosed.is_empty() {
            match self.gate.window.as_mut().and_then(Window::take) {
                None => break,
                Some(Release::Next(group)) => self.close_group(&group, None).await,
                Some(Release::TooOld(group)) => {
                    self.context.log.line(format!(
                        "group {group} is dropped: the policy changed more often than --max-staleness permits"
                    ));
                    self.close_group(&group, Some(DropCause::TooOld)).await;
                }
            }
        }
        self.admit_groups();
    }

    /// Applies a change of the policy version.
    pub(super) async fn policy_changed(&mut self) {
        let current = *self.policy.borrow_and_update();
        if let Some(window) = &mut self.gate.window {
            window.changed(current);
        }
        self.release_groups().await;
    }

    /// Tries failed closings again, in their order.
    pub(super) async fn close_again(&mut self) {
        if self.gate.close_again_at().is_none_or(|at| at > Instant::now()) {
            return;
        }
        for (group, dropped) in std::mem::take(&mut self.gate.unclosed) {
            self.close_group(&group, dropped).await;
        }
        self.release_groups().await;
    }

    /// Closes a group at the proxy, and records that.
    async fn close_group(&mut self, group: &GroupId, mut dropped: Option<DropCause>) {
        let Some(id) = self.table.of_group(group).map(|entry| entry.submitted.id.clone()) else { return };
        let complete = match self.closing_client().close_group(group, dropped.is_some()).await {
            Ok(complete) => complete,
            Err(error) => {
                self.context.log.line(format!("group {group} is not closed yet: {}", chain(&error)));
                self.gate.unclosed.push_back((group.clone(), dropped));
                self.gate.close_again_at = Instant::now().checked_add(CLOSE_AGAIN);
                return;
            }
        };
        if let Some(window) = self.gate.window.as_mut().filter(|_| complete == 0 && dropped.is_none()) {
            window.was_empty();
            dropped = Some(DropCause::Empty);
        }
        let (group_id, at) = (group.clone(), Timestamp::now());
        let mut records = vec![SubmissionRecord::GroupClosed { id: id.clone(), group_id, at, dropped }];
        // The position is written with the closing, so that a restart counts no place twice.
        let position = self.gate.window.as_ref().map(Window::position);
        records.extend(position.map(SubmissionRecord::Position));
        self.write_or_apply(records, false).await;
        self.end_if_over(&id).await;
    }

    /// Drops or closes the groups of a submission that was stopped. With a budget, its complete groups wait for their turn
    /// as before.
    pub(super) async fn close_stopped(&mut self, id: &SubmissionId) {
        let Some(entry) = self.table.get(id) else { return };
        let has_budget = self.gate.window.is_some();
        let open = entry.open_groups().filter(|(_, _, is_complete)| !(has_budget && *is_complete));
        for group in open.map(|(group, ..)| group.clone()).collect::<Vec<_>>() {
            if has_budget {
                self.drop_group(&group, DropCause::Stopped).await;
            } else {
                self.close_group(&group, None).await;
            }
        }
    }
}

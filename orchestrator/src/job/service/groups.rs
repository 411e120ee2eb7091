//! The groups of a service: when their samples may begin, and when a complete group closes.
//!
//! Without a budget of staleness, groups begin in the order of the queue and close when they are complete. With a
//! budget, [`Window`] decides both.

use jiff::Timestamp;
use rolltap_proxy::api::DropCause;
use rolltap_rollout::ids::{GroupId, SubmissionId};

use super::log::SubmissionRecord;
use super::pacing::{Pace, Release, Window};
use super::run::Service;
use super::table::Table;
use crate::failure::chain;
use crate::job::stretch::Stretch;

/// The groups that wait for the budget of staleness, and the rules for their release.
#[derive(Debug, Default)]
pub(super) struct GroupGate {
    /// `None` without a budget: then nothing waits.
    window: Option<Window>,
    /// Whether groups whose valid rewards are all equal are dropped.
    drops_uniform: bool,
    /// The groups that have not begun, in the order in which they begin.
    waiting: Vec<WaitingGroup>,
    /// Groups whose closing failed. It is tried again.
    unclosed: Vec<(GroupId, Option<DropCause>)>,
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
        let (base, released) = table.position().unwrap_or((current, 0));
        let window = pace.map(|pace| Window::new(pace, base, released, current));
        Self { window, drops_uniform, ..Self::default() }
    }

    /// Whether a closing must be tried again.
    pub(super) fn has_unclosed(&self) -> bool {
        !self.unclosed.is_empty()
    }
}

impl Service {
    /// Queues the samples of a group, or lets them wait for the budget.
    pub(super) fn add_group(&mut self, id: &GroupId, samples: Vec<Stretch>, priority: i32) {
        let at = self.gate.waiting.iter().position(|waiting| waiting.priority < priority);
        let at = at.unwrap_or(self.gate.waiting.len());
        self.gate.waiting.insert(at, WaitingGroup { id: id.clone(), priority, samples });
        self.admit_groups();
    }

    /// Queues the rest of a group that began under a policy version before a restart.
    pub(super) fn restore_group(&mut self, id: &GroupId, samples: Vec<Stretch>, priority: i32, version: i32) {
        if let Some(window) = &mut self.gate.window {
            window.restore(id.clone(), version);
        }
        samples.into_iter().for_each(|stretch| self.dispatcher.queue.push(stretch, priority));
    }

    /// Queues the waiting groups for which the budget has room.
    fn admit_groups(&mut self) {
        while !self.gate.waiting.is_empty() && self.gate.window.as_ref().is_none_or(Window::has_room) {
            let WaitingGroup { id, priority, samples } = self.gate.waiting.remove(0);
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
        drop(self.write(vec![record], false).await);
    }

    /// Closes a group whose samples have all ended, or lets it wait for its turn.
    pub(super) async fn group_is_complete(&mut self, group: &GroupId) {
        if self.gate.drops_uniform && self.table.is_uniform(group) {
            self.drop_group(group, DropCause::Uniform).await;
        } else if let Some(window) = &mut self.gate.window {
            window.ready(group);
        } else {
            self.close_group(group, None).await;
        }
        self.release_groups().await;
    }

    /// Drops a group that takes no place in the order of released groups.
    pub(super) async fn drop_group(&mut self, group: &GroupId, cause: DropCause) {
        if let Some(window) = &mut self.gate.window {
            window.remove(group);
        }
        self.gate.waiting.retain(|waiting| waiting.id != *group);
        self.close_group(group, Some(cause)).await;
    }

    /// Releases the complete groups whose turn it is, and begins those for which there is room then.
    pub(super) async fn release_groups(&mut self) {
        while let Some(release) = self.gate.window.as_mut().and_then(Window::take) {
            match release {
                Release::Next(group) => self.close_group(&group, None).await,
                Release::TooOld(group) => {
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

    /// Tries failed closings again.
    pub(super) async fn close_again(&mut self) {
        for (group, dropped) in std::mem::take(&mut self.gate.unclosed) {
            self.close_group(&group, dropped).await;
        }
    }

    /// Closes a group at the proxy, and records that.
    async fn close_group(&mut self, group: &GroupId, dropped: Option<DropCause>) {
        let Some(id) = self.table.of_group(group).map(|entry| entry.submitted.id.clone()) else { return };
        if let Err(error) = self.context.admin.close_group(group, dropped.is_some()).await {
            self.context.log.line(format!("group {group} is not closed yet: {}", chain(&error)));
            self.gate.unclosed.push((group.clone(), dropped));
            return;
        }
        let mut records = vec![SubmissionRecord::GroupClosed {
            id: id.clone(),
            group_id: group.clone(),
            at: Timestamp::now(),
            dropped,
        }];
        // The position is written with the closing, so that a restart counts no place twice.
        let position = self.gate.window.as_ref().map(Window::position);
        records.extend(position.map(|(base, released)| SubmissionRecord::Position { base, released }));
        self.write_or_apply(records, false).await;
        self.end_if_over(&id).await;
    }

    /// Drops or closes the groups of a submission that was stopped.
    pub(super) async fn close_stopped(&mut self, id: &SubmissionId) {
        let Some(entry) = self.table.get(id) else { return };
        let groups: Vec<GroupId> = entry.open_groups().map(|(group, ..)| group.clone()).collect();
        for group in groups {
            match self.gate.window {
                Some(_) => self.drop_group(&group, DropCause::Stopped).await,
                None => self.close_group(&group, None).await,
            }
        }
    }
}

//! One group: the samples that a trainer compares, until the group accepts no further one.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rolltap_rollout::ids::GroupId;

use super::refusal::OpenRefusal;
use crate::api::ClosingCause;
use crate::common::seconds::Seconds;
use crate::store::{GroupClosed, Opened};

/// The state of a group. Its trials give its size and its deadline. The first trial that gives a value sets it, and no
/// later trial may give a different one.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Group {
    pub(super) size: Option<u32>,
    patience: Option<Seconds>,
    first_sealed_at: Option<Timestamp>,
    /// The indices of its samples.
    pub(super) samples: BTreeSet<u32>,
    /// The number of complete trials, of all attempts.
    pub(super) complete: usize,
    pub(super) closed: Option<GroupClosed>,
    /// Whether the group does not close by itself when it is full.
    is_held: bool,
}

impl Group {
    /// Checks whether a trial with these values may be opened in the group.
    pub(super) fn check(&self, id: &GroupId, opened: &Opened) -> Result<(), OpenRefusal> {
        if let Some(closed) = &self.closed {
            return Err(OpenRefusal::GroupClosed { group: id.clone(), cause: closed.cause });
        }
        let (size, patience) = (opened.facts.group_size, opened.group_deadline);
        match (self.size, size) {
            (Some(known), Some(said)) if known != said => {
                return Err(OpenRefusal::OtherSize { group: id.clone(), known, said });
            }
            _ => {}
        }
        match (self.patience, patience) {
            (Some(known), Some(said)) if known != said => {
                Err(OpenRefusal::OtherDeadline { group: id.clone(), known: known.into(), said: said.into() })
            }
            _ => Ok(()),
        }
    }

    /// Adds a trial. It is not checked, because stored trials count as they are.
    pub(super) fn add(&mut self, opened: &Opened) {
        self.samples.insert(opened.facts.sample_index);
        // The first value counts. Stored trials are not checked, so a later value may differ.
        self.size = self.size.or(opened.facts.group_size);
        self.patience = self.patience.or(opened.group_deadline);
        self.is_held |= opened.hold_group;
    }

    /// Notes that a trial of the group was sealed.
    pub(super) fn sealed(&mut self, at: Timestamp) {
        // The deadline counts from the first seal in the group.
        self.first_sealed_at.get_or_insert(at);
    }

    /// Returns the deadline of the group: `patience` after the first seal.
    pub(super) fn deadline_at(&self) -> Option<Timestamp> {
        self.patience?.after(self.first_sealed_at?)
    }

    /// Whether readers of closed groups wait for the trials of the group, or never get them.
    pub(super) fn holds_trials_back(&self) -> bool {
        self.closed.as_ref().is_none_or(|closed| closed.cause == ClosingCause::Dropped)
    }

    /// Whether the group may have enough complete samples to close. Only then are the samples counted, which is slower.
    pub(super) fn may_be_full(&self) -> bool {
        self.closed.is_none() && !self.is_held && self.size.is_some_and(|size| self.complete >= size as usize)
    }
}

//! One group: the samples that a trainer compares, until no further one will come.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rolltap_rollout::ids::GroupId;

use super::refusal::OpenRefusal;
use crate::common::seconds::Seconds;
use crate::store::{GroupClosed, Opened};

/// What is known of a group. Its trials say of what size it is and how long it may take; the first to say so counts, and
/// none may say otherwise.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Group {
    pub(super) size: Option<u32>,
    patience: Option<Seconds>,
    first_sealed_at: Option<Timestamp>,
    /// By index.
    pub(super) samples: BTreeSet<u32>,
    /// Complete trials, of every attempt.
    pub(super) complete: usize,
    pub(super) closed: Option<GroupClosed>,
}

impl Group {
    /// Whether a trial may be opened that says this of its group.
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

    /// Takes a trial in. Those that were kept count as they are.
    pub(super) fn add(&mut self, opened: &Opened) {
        self.samples.insert(opened.facts.sample_index);
        self.size = self.size.or(opened.facts.group_size);
        self.patience = self.patience.or(opened.group_deadline);
    }

    /// One of its trials is sealed.
    pub(super) fn sealed(&mut self, at: Timestamp) {
        self.first_sealed_at.get_or_insert(at);
    }

    /// When it closes at the latest.
    pub(super) fn deadline_at(&self) -> Option<Timestamp> {
        self.patience?.after(self.first_sealed_at?)
    }

    /// Whether it might have as many complete samples as its size: worth counting them.
    pub(super) fn may_be_full(&self) -> bool {
        self.closed.is_none() && self.size.is_some_and(|size| self.complete >= size as usize)
    }
}

//! Groups whose trials have not all arrived, for formats with one entry per group.

use std::collections::BTreeMap;

use crate::export::exporter::GroupPlace;

/// Collects an item of each trial until the group has all of its trials.
#[derive(Debug)]
pub(crate) struct OpenGroups<T>(BTreeMap<usize, Vec<T>>);

impl<T> Default for OpenGroups<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> OpenGroups<T> {
    /// Adds the item of a trial. Returns the items of the group if this trial is its last one.
    pub(crate) fn add(&mut self, GroupPlace { ordinal, trials }: GroupPlace, item: T) -> Option<Vec<T>> {
        let group = self.0.entry(ordinal).or_default();
        group.push(item);
        if group.len() < trials { None } else { self.0.remove(&ordinal) }
    }

    /// Removes and returns the groups that lack a trial, in order. There are none unless the input has fewer trials than
    /// the plan counted.
    pub(crate) fn take_incomplete(&mut self) -> impl Iterator<Item = Vec<T>> + use<T> {
        std::mem::take(&mut self.0).into_values()
    }
}

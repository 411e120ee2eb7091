//! Leaves out groups from which a trainer learns nothing, or something wrong.

use std::collections::{HashMap, HashSet};

use super::LeftOut;
use super::selection::Candidate;
use crate::export::pipeline::rules::{Comparison, Rules, ShortGroups};

/// The counts of a group that decide whether it is exported.
#[derive(Debug, Default)]
struct Group {
    /// The samples of the group in the input, exported or not.
    samples: HashSet<i32>,
    /// The number of samples with which the group was opened, if known.
    size: Option<usize>,
    /// The exported trials.
    trials: usize,
    /// The exported trials that count in the baseline.
    rewards: usize,
    /// The exported trials with a row that is trained.
    trained: usize,
}

impl Group {
    /// Whether the group consists of one trial by intent, so that its trainer does not compare.
    fn is_single(&self) -> bool {
        self.samples.len() <= 1 && self.size.unwrap_or(1) <= 1
    }

    fn places(&self) -> usize {
        self.trials.max(self.size.unwrap_or(0))
    }
}

/// Marks the trials of unfit groups:
///
/// - groups in which nothing is trained, unless the rules include these: some estimators divide by the number of
///   trained tokens;
/// - groups in which a single trial has a reward, if the trainer compares rewards: most trainers then use the raw
///   reward as the advantage;
/// - groups with fewer rewards than trials, if the trainer counts and short groups are dropped.
///
/// Returns the number of trials that every group must have, if the trainer counts.
pub(super) fn leave_out_unfit(candidates: &mut [Candidate<'_>], rules: &Rules) -> Option<usize> {
    let mut groups = groups_of(candidates, rules);
    let mut unfit = HashMap::new();
    groups.retain(|key, group| match reason(group, rules) {
        Some(reason) => {
            unfit.insert(*key, reason);
            false
        }
        None => true,
    });
    let is_counted = matches!(rules.comparison, Comparison::Counted(_));
    let places = groups.values().map(Group::places).max().filter(|_| is_counted);
    if rules.comparison == Comparison::Counted(ShortGroups::Drop) {
        let short = groups.iter().filter(|(_, group)| Some(group.rewards) < places);
        unfit.extend(short.map(|(key, _)| (*key, LeftOut::ShortGroup)));
    }
    let reasons: Vec<_> = candidates.iter().map(|candidate| unfit.get(&key(candidate)).copied()).collect();
    for (candidate, reason) in candidates.iter_mut().zip(reasons) {
        candidate.left_out = candidate.left_out.or(reason);
    }
    places
}

/// The name of a group, or the name of a trial without a group.
type Key<'a> = (Option<&'a str>, &'a str);

fn key<'a>(candidate: &Candidate<'a>) -> Key<'a> {
    match candidate.seen.facts.group_id.as_deref() {
        Some(group) => (Some(group), ""),
        None => (None, &candidate.seen.facts.trial_id),
    }
}

fn groups_of<'a>(candidates: &[Candidate<'a>], rules: &Rules) -> HashMap<Key<'a>, Group> {
    let mut groups: HashMap<Key<'a>, Group> = HashMap::new();
    for candidate in candidates {
        let facts = &candidate.seen.facts;
        let group = groups.entry(key(candidate)).or_default();
        group.samples.insert(facts.sample_index);
        group.size = facts.samples_of_group();
        if candidate.left_out.is_none() {
            let counts = candidate.counted_reward(rules.failed).is_some();
            group.trials += 1;
            group.rewards += usize::from(counts);
            group.trained += usize::from(counts && candidate.seen.has_rows);
        }
    }
    groups.retain(|_, group| group.trials > 0);
    groups
}

fn reason(group: &Group, rules: &Rules) -> Option<LeftOut> {
    if group.trained == 0 && !rules.untrained_groups {
        return Some(LeftOut::NothingTrained);
    }
    (rules.compares() && group.rewards == 1 && !group.is_single()).then_some(LeftOut::OnlyReward)
}

//! Selects the trials of an export.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::by_reward::{leave_out_all_but_best, leave_out_low_rewards};
use super::{LeftOut, PlanError, groups};
use crate::export::pipeline::rules::{Comparison, Failed, Rules, ShortGroups};
use crate::export::pipeline::survey::{Seen, Survey};

/// A trial during the selection.
pub(super) struct Candidate<'a> {
    pub(super) seen: &'a Seen,
    pub(super) reward: Option<f64>,
    pub(super) is_failed: bool,
    pub(super) left_out: Option<LeftOut>,
}

impl Candidate<'_> {
    pub(super) fn group(&self) -> Option<&str> {
        self.seen.facts.group_id.as_deref()
    }

    /// Returns the reward that counts in the baseline of the group: the trial's own, or 0 for a failed trial that counts
    /// as 0. `None` for any other failed trial.
    pub(super) fn counted_reward(&self, failed: Failed) -> Option<f64> {
        match (self.is_failed, failed) {
            (false, _) => self.reward,
            (true, Failed::Zero) => Some(0.0),
            (true, Failed::Mask | Failed::Drop | Failed::DropGroup) => None,
        }
    }

    /// Whether the verifier gave numbers by name, and none to train on.
    pub(super) fn has_unchosen_rewards(&self) -> bool {
        self.reward.is_none() && !self.seen.facts.rewards.is_empty()
    }

    /// Returns the sample of this attempt, as the feed defines it: a sample of its group, or of its task if it has no
    /// group.
    fn sample(&self) -> (Option<&str>, Option<&str>, i32) {
        let facts = &self.seen.facts;
        let task = self.group().is_none().then_some(facts.task_id.as_str());
        (self.group(), task, facts.sample_index)
    }
}

/// The trials of an export.
pub(super) struct Selection<'a> {
    /// Every trial of the input, with the reason if it is not exported.
    pub(super) candidates: Vec<Candidate<'a>>,
    /// The number of trials that every group must have, if the trainer finds groups by counting.
    pub(super) places: Option<usize>,
}

/// Selects the trials of an export.
pub(super) fn select(survey: &Survey) -> Result<Selection<'_>, PlanError> {
    let mut candidates = candidates(survey)?;
    sizes(&candidates)?;
    // Each step only considers trials that the earlier steps did not omit, so this order determines the reported
    // reason.
    supersede(&mut candidates, survey.rules.superseded)?;
    if !survey.rules.open_groups {
        leave_out_open_groups(&mut candidates, &survey.closed);
    }
    leave_out_failed(&mut candidates, survey.rules.failed);
    leave_out_stale(&mut candidates, survey);
    leave_out_rowless(&mut candidates, &survey.rules);
    leave_out_low_rewards(&mut candidates, &survey.rules);
    leave_out_all_but_best(&mut candidates, &survey.rules);
    let places = groups::leave_out_unfit(&mut candidates, &survey.rules);
    Ok(Selection { candidates, places })
}

/// Omits failed trials that sampled nothing, unless they fill a place of a group whose trials the trainer counts. A
/// trial that sampled nothing and has a reward counts in the baseline of its group.
fn leave_out_rowless(candidates: &mut [Candidate<'_>], rules: &Rules) {
    if rules.comparison == Comparison::Counted(ShortGroups::Pad) {
        return;
    }
    for candidate in candidates.iter_mut().filter(|candidate| !candidate.seen.has_rows) {
        if candidate.counted_reward(rules.failed).is_none() {
            candidate.left_out.get_or_insert(LeftOut::WithoutTokens);
        }
    }
}

fn candidates(survey: &Survey) -> Result<Vec<Candidate<'_>>, PlanError> {
    if let Some(rule) = &survey.rules.reward {
        let known: BTreeSet<&str> =
            survey.trials.iter().flat_map(|seen| seen.facts.rewards.keys()).map(String::as_str).collect();
        let unknown = rule.names().into_iter().find(|name| !known.contains(name));
        // Trials that were not judged have no names, which is not an error of the rule.
        if let Some(name) = unknown.filter(|_| !known.is_empty()) {
            let known = known.into_iter().map(str::to_owned).collect();
            return Err(PlanError::NoSuchReward { name: name.to_owned(), known });
        }
    }
    survey.trials.iter().map(|seen| candidate(seen, &survey.rules)).collect()
}

fn candidate<'a>(seen: &'a Seen, rules: &Rules) -> Result<Candidate<'a>, PlanError> {
    let facts = &seen.facts;
    let (reward, valid) = match &rules.reward {
        None => (facts.reward, facts.reward_valid),
        Some(rule) => {
            let has_failed = facts.failure_cause.is_some();
            rule.instead_of(facts.reward, &facts.rewards, facts.reward_valid, has_failed)
        }
    };
    if let Some(value) = reward.filter(|reward| !reward.is_finite()) {
        return Err(PlanError::Reward { trial_id: facts.trial_id.clone(), value });
    }
    Ok(Candidate { seen, reward, is_failed: reward.is_none() || !valid, left_out: None })
}

/// Requires that all trials of a group name the same size.
fn sizes(candidates: &[Candidate<'_>]) -> Result<(), PlanError> {
    let mut sizes: HashMap<&str, Option<i32>> = HashMap::new();
    for candidate in candidates {
        let Some(group_id) = candidate.group() else { continue };
        let said = candidate.seen.facts.group_size;
        let known = *sizes.entry(group_id).or_insert(said);
        if known != said {
            let trial_id = candidate.seen.facts.trial_id.clone();
            return Err(PlanError::GroupSize { trial_id, group_id: group_id.to_owned(), said, known });
        }
    }
    Ok(())
}

/// Marks superseded attempts. A row has the state at the time of its export, so a later attempt may exist beside it.
fn supersede(candidates: &mut [Candidate<'_>], takes_superseded: bool) -> Result<(), PlanError> {
    let mut attempts = HashMap::new();
    let mut last: HashMap<_, i32> = HashMap::new();
    for candidate in candidates.iter() {
        let facts = &candidate.seen.facts;
        let latest = last.entry(candidate.sample()).or_insert(facts.attempt);
        *latest = (*latest).max(facts.attempt);
        let Some(group_id) = candidate.group() else { continue };
        let before = attempts.insert((group_id, facts.sample_index, facts.attempt), &facts.trial_id);
        if let Some(first) = before {
            return Err(PlanError::OneSampleTwice {
                group_id: group_id.to_owned(),
                sample_index: facts.sample_index,
                attempt: facts.attempt,
                first: first.clone(),
                second: facts.trial_id.clone(),
            });
        }
    }
    if !takes_superseded {
        let is_superseded: Vec<_> = candidates
            .iter()
            .map(|candidate| {
                let is_last = last.get(&candidate.sample()) == Some(&candidate.seen.facts.attempt);
                candidate.seen.facts.superseded || !is_last
            })
            .collect();
        for (candidate, is_superseded) in candidates.iter_mut().zip(is_superseded) {
            candidate.left_out = is_superseded.then_some(LeftOut::Superseded);
        }
    }
    Ok(())
}

/// Omits incomplete groups. A group is complete if it has as many samples as its size, or if it is closed.
fn leave_out_open_groups(candidates: &mut [Candidate<'_>], closed: &HashSet<String>) {
    let mut samples: HashMap<String, BTreeSet<i32>> = HashMap::new();
    for candidate in candidates.iter().filter(|candidate| candidate.left_out.is_none()) {
        if let Some(group_id) = candidate.group() {
            samples.entry(group_id.to_owned()).or_default().insert(candidate.seen.facts.sample_index);
        }
    }
    for candidate in candidates {
        let Some(group_id) = candidate.group() else { continue };
        let count = samples.get(group_id).map_or(0, BTreeSet::len);
        let size = candidate.seen.facts.samples_of_group();
        let is_whole = closed.contains(group_id) || size.is_some_and(|size| count >= size);
        if !is_whole {
            candidate.left_out.get_or_insert(LeftOut::OpenGroup);
        }
    }
}

fn leave_out_failed(candidates: &mut [Candidate<'_>], failed: Failed) {
    let (alone, others) = match failed {
        Failed::Mask | Failed::Zero => return,
        Failed::Drop => (true, false),
        Failed::DropGroup => (true, true),
    };
    let is_taken_and_failed =
        |candidate: &&mut Candidate<'_>| candidate.left_out.is_none() && candidate.is_failed;
    let mut groups = HashSet::new();
    for candidate in candidates.iter_mut().filter(is_taken_and_failed) {
        // A failed trial without a group has nothing else to drop.
        groups.extend(candidate.group().map(str::to_owned));
        candidate.left_out = alone.then_some(LeftOut::Failed);
    }
    if others {
        let is_in_such_a_group =
            |candidate: &&mut Candidate<'_>| candidate.group().is_some_and(|group| groups.contains(group));
        for candidate in candidates.iter_mut().filter(is_in_such_a_group) {
            candidate.left_out.get_or_insert(LeftOut::FailedGroup);
        }
    }
}

/// Omits trials with old tokens. A masked failed trial is not trained, so its age has no effect.
fn leave_out_stale(candidates: &mut [Candidate<'_>], survey: &Survey) {
    let Some(staleness) = survey.rules.staleness else { return };
    // Without a version in the input nothing is stale.
    let Some(now) = staleness.policy_version.or(survey.newest).map(i64::from) else { return };
    let is_masked = |candidate: &Candidate<'_>| candidate.is_failed && survey.rules.failed == Failed::Mask;
    for candidate in candidates {
        let oldest = candidate.seen.oldest.filter(|_| !is_masked(candidate)).map(i64::from);
        if oldest.is_some_and(|oldest| now - oldest > i64::from(staleness.limit)) {
            candidate.left_out.get_or_insert(LeftOut::Stale);
        }
    }
}

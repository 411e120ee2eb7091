//! What becomes of each trial: decided of all of them together, after a first pass and before the second.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use super::advantage::Advantage;
use super::exporter::Group;
use super::named::Named;
use super::rules::{Failed, Rules};
use super::survey::{Seen, Survey};

/// What becomes of each trial of an input.
#[derive(Debug)]
pub struct Plan {
    pub(super) rules: Rules,
    /// Of those that are exported.
    pub(super) verdicts: HashMap<String, Verdict>,
    /// Every other trial of the input.
    left_out: BTreeMap<LeftOut, u64>,
    groups: usize,
    failed: u64,
    alone: u64,
}

/// How a trial is exported.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    pub(super) reward: Option<f64>,
    pub(super) is_masked: bool,
    pub(super) advantage: Option<f64>,
    pub(super) group: Option<Group>,
}

/// Why a trial is not exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeftOut {
    /// A later attempt counts.
    Superseded,
    /// Others of its group are missing.
    OpenGroup,
    /// It failed, and failed ones are dropped.
    Failed,
    /// Another one of its group failed, and with it goes the group.
    FailedGroup,
    /// It holds tokens of too old a policy.
    Stale,
    /// It sampled nothing.
    WithoutTokens,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superseded => "superseded by a later attempt (--superseded takes them)",
            Self::OpenGroup => "of groups that are not whole (--open-groups takes them)",
            Self::Failed => "failed (--failed drop)",
            Self::FailedGroup => "of groups in which a trial failed (--failed drop-group)",
            Self::Stale => "with tokens of too old a policy (--max-staleness)",
            Self::WithoutTokens => "without a sampled token",
        })
    }
}

/// Why nothing can be decided.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Nothing can be trained on that, and no mean be taken of it.
    #[error(
        "trial {trial_id}: the reward is {value}, which is no number to train on; correct it before export"
    )]
    Reward {
        /// The trial.
        trial_id: String,
        /// Its reward.
        value: f64,
    },
    /// Nobody could tell which counts.
    #[error(
        "trials {first} and {second} are both attempt {attempt} at sample {sample_index} of group {group_id}; a group's samples have to be told apart"
    )]
    OneSampleTwice {
        /// The group.
        group_id: String,
        /// The sample.
        sample_index: i32,
        /// The attempt.
        attempt: i32,
        /// One of the trials.
        first: String,
        /// The other.
        second: String,
    },
    /// Nobody could tell when it is whole.
    #[error("trial {trial_id} says that group {group_id} has {said:?} trials, another one says {known:?}")]
    GroupSize {
        /// The trial.
        trial_id: String,
        /// The group.
        group_id: String,
        /// What the trial says.
        said: Option<i32>,
        /// What others say.
        known: Option<i32>,
    },
    /// There is nothing that it could be weighed against.
    #[error("trial {trial_id} has no group in which --advantage {} could weigh it; use --advantage none, or open trials with a group_id", .advantage.name())]
    Ungrouped {
        /// The trial.
        trial_id: String,
        /// What was asked for.
        advantage: Advantage,
    },
    /// A misspelt name would make failures of all trials.
    #[error("no trial has a reward named {name:?}; the names are: {}", .known.join(", "))]
    NoSuchReward {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The rewards are too large for arithmetic.
    #[error("group {group_id}: the rewards are too large to be weighed against each other")]
    Advantage {
        /// The group.
        group_id: String,
    },
}

impl Plan {
    /// How many trials are exported.
    pub fn trials(&self) -> usize {
        self.verdicts.len()
    }

    /// How many groups they are of.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// How many trials are not exported, and why.
    pub fn left_out(&self) -> impl Iterator<Item = (LeftOut, u64)> {
        self.left_out.iter().map(|(why, count)| (*why, *count))
    }

    /// How many failed trials are exported, which train nothing or count as 0.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// How many trials have an advantage of 0 because no other one of their group counts.
    pub fn alone(&self) -> u64 {
        self.alone
    }
}

/// A trial on its way to a verdict.
struct Candidate<'a> {
    seen: &'a Seen,
    reward: Option<f64>,
    is_failed: bool,
    left_out: Option<LeftOut>,
}

impl Candidate<'_> {
    fn group(&self) -> Option<&str> {
        self.seen.facts.group_id.as_deref()
    }

    /// What it is an attempt at, as the feed has it: a sample of its group, or of its task where it has none.
    fn sample(&self) -> (Option<&str>, Option<&str>, i32) {
        let facts = &self.seen.facts;
        let task = self.group().is_none().then_some(facts.task_id.as_str());
        (self.group(), task, facts.sample_index)
    }
}

impl Survey {
    /// Decides what becomes of each trial.
    ///
    /// # Errors
    /// What the trials say of themselves does not let anybody decide.
    pub fn plan(self) -> Result<Plan, PlanError> {
        let mut candidates = candidates(&self)?;
        sizes(&candidates)?;
        supersede(&mut candidates, self.rules.superseded)?;
        if !self.rules.open_groups {
            leave_out_open_groups(&mut candidates, &self.closed);
        }
        leave_out_failed(&mut candidates, self.rules.failed);
        leave_out_stale(&mut candidates, &self);
        for candidate in &mut candidates {
            if !candidate.seen.has_rows {
                candidate.left_out.get_or_insert(LeftOut::WithoutTokens);
            }
        }
        decide(&candidates, &self.rules)
    }
}

fn candidates(survey: &Survey) -> Result<Vec<Candidate<'_>>, PlanError> {
    if let Some(name) = &survey.rules.reward {
        let known: BTreeSet<&String> =
            survey.trials.iter().flat_map(|seen| seen.facts.rewards.keys()).collect();
        if !survey.is_empty() && !known.contains(name) {
            let known = known.into_iter().cloned().collect();
            return Err(PlanError::NoSuchReward { name: name.clone(), known });
        }
    }
    survey.trials.iter().map(|seen| candidate(seen, &survey.rules)).collect()
}

fn candidate<'a>(seen: &'a Seen, rules: &Rules) -> Result<Candidate<'a>, PlanError> {
    let facts = &seen.facts;
    let reward = match &rules.reward {
        Some(name) => facts.rewards.get(name).copied(),
        None => facts.reward,
    };
    if let Some(value) = reward.filter(|reward| !reward.is_finite()) {
        return Err(PlanError::Reward { trial_id: facts.trial_id.clone(), value });
    }
    Ok(Candidate { seen, reward, is_failed: reward.is_none() || !facts.reward_valid, left_out: None })
}

/// All trials of a group say the same of its size.
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

/// Rows say what was known when they were made; a later attempt may stand beside them.
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

/// A group is whole when it has as many samples as it has to have, or when it takes no further trial.
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
        let size = candidate.seen.facts.group_size.and_then(|size| usize::try_from(size).ok());
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

/// A failed trial that trains nothing trains nothing old.
fn leave_out_stale(candidates: &mut [Candidate<'_>], survey: &Survey) {
    let Some(staleness) = survey.rules.staleness else { return };
    let Some(now) = staleness.policy_version.or(survey.newest).map(i64::from) else { return };
    let is_masked = |candidate: &Candidate<'_>| candidate.is_failed && survey.rules.failed == Failed::Mask;
    for candidate in candidates {
        let oldest = candidate.seen.oldest.filter(|_| !is_masked(candidate)).map(i64::from);
        if oldest.is_some_and(|oldest| now - oldest > i64::from(staleness.limit)) {
            candidate.left_out.get_or_insert(LeftOut::Stale);
        }
    }
}

fn decide(candidates: &[Candidate<'_>], rules: &Rules) -> Result<Plan, PlanError> {
    let mut left_out = BTreeMap::new();
    for why in candidates.iter().filter_map(|candidate| candidate.left_out) {
        *left_out.entry(why).or_default() += 1;
    }
    let taken: Vec<_> = candidates.iter().filter(|candidate| candidate.left_out.is_none()).collect();
    let mut ordinals = HashMap::new();
    let mut members: Vec<Vec<&Candidate<'_>>> = Vec::new();
    let mut verdicts = HashMap::new();
    for candidate in &taken {
        let Some(group_id) = candidate.group() else {
            if rules.advantage != Advantage::None {
                let trial_id = candidate.seen.facts.trial_id.clone();
                return Err(PlanError::Ungrouped { trial_id, advantage: rules.advantage });
            }
            verdicts.insert(candidate.seen.facts.trial_id.clone(), verdict(candidate, rules));
            continue;
        };
        let ordinal = *ordinals.entry(group_id).or_insert(members.len());
        if ordinal == members.len() {
            members.push(Vec::new());
        }
        members.get_mut(ordinal).into_iter().for_each(|members| members.push(candidate));
    }
    let mut alone = 0;
    for (ordinal, members) in members.iter().enumerate() {
        let group = Group { ordinal, trials: members.len() };
        let weighed = weigh(members, rules)?;
        alone += u64::from(weighed.is_alone);
        for (candidate, advantage) in members.iter().zip(weighed.advantages) {
            let verdict = Verdict { advantage, group: Some(group), ..verdict(candidate, rules) };
            verdicts.insert(candidate.seen.facts.trial_id.clone(), verdict);
        }
    }
    let failed = taken.iter().filter(|candidate| candidate.is_failed).count() as u64;
    Ok(Plan { rules: rules.clone(), verdicts, left_out, groups: members.len(), failed, alone })
}

/// Of a trial by itself.
fn verdict(candidate: &Candidate<'_>, rules: &Rules) -> Verdict {
    let (reward, is_masked) = match (candidate.is_failed, rules.failed) {
        (false, _) => (candidate.reward, false),
        (true, Failed::Zero) => (Some(0.0), false),
        (true, Failed::Mask | Failed::Drop | Failed::DropGroup) => (None, true),
    };
    Verdict { reward, is_masked, advantage: None, group: None }
}

struct Weighed {
    /// In the order of the members.
    advantages: Vec<Option<f64>>,
    is_alone: bool,
}

/// Only trials that are trained count; the others have an advantage of 0.
fn weigh(members: &[&Candidate<'_>], rules: &Rules) -> Result<Weighed, PlanError> {
    let rewards = members.iter().map(|member| verdict(member, rules));
    let rewards: Vec<_> = rewards.map(|verdict| verdict.reward.filter(|_| !verdict.is_masked)).collect();
    let counting: Vec<f64> = rewards.iter().copied().flatten().collect();
    let Some(advantages) = rules.advantage.of(&counting) else {
        return Ok(Weighed { advantages: vec![None; members.len()], is_alone: false });
    };
    if advantages.iter().any(|advantage| !advantage.is_finite()) {
        let group_id = members.first().and_then(|member| member.group()).unwrap_or_default().to_owned();
        return Err(PlanError::Advantage { group_id });
    }
    let mut counted = advantages.into_iter();
    let advantages = rewards.iter().map(|reward| match reward {
        Some(_) => counted.next(),
        None => Some(0.0),
    });
    Ok(Weighed { advantages: advantages.collect(), is_alone: counting.len() == 1 })
}

#[cfg(test)]
mod tests;

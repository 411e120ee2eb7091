//! Determines the reward of each exported trial, and its advantage within its group.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::selection::{Candidate, Selection};
use super::{Plan, PlanCounts, PlanError, Rowless, Verdict};
use crate::export::exporter::GroupPlace;
use crate::export::pipeline::advantage::{Advantage, mean_and_deviation};
use crate::export::pipeline::projection::RowFacts;
use crate::export::pipeline::rules::Rules;
use crate::export::pipeline::stand_in;

/// Returns the plan of these candidates.
pub(super) fn plan(selection: &Selection<'_>, rules: &Rules) -> Result<Plan, PlanError> {
    let candidates = &selection.candidates;
    let left_out = candidates
        .iter()
        .filter_map(|candidate| Some((candidate.seen.facts.trial_id.clone(), candidate.left_out?)))
        .collect();
    let taken: Vec<_> = candidates.iter().filter(|candidate| candidate.left_out.is_none()).collect();
    // The selection comes first: trials that are not exported may have other tokenizers.
    one_tokenizer(&taken)?;
    let (groups, ungrouped) = grouped(&taken);
    // With --reward, a trial without that name has no reward, and another choice of a name is no remedy.
    let unchosen_rewards = match rules.reward {
        Some(_) => 0,
        None => candidates.iter().filter(|candidate| candidate.has_unchosen_rewards()).count() as u64,
    };
    let mut plan = Plan {
        rules: rules.clone(),
        verdicts: HashMap::new(),
        left_out,
        rowless: Vec::new(),
        counts: PlanCounts { groups: groups.len(), unchosen_rewards, ..PlanCounts::default() },
        reward_names: names(candidates),
    };
    for candidate in ungrouped {
        if rules.advantage != Advantage::None {
            let trial_id = candidate.seen.facts.trial_id.clone();
            return Err(PlanError::Ungrouped { trial_id, advantage: rules.advantage });
        }
        plan.add(candidate, verdict(candidate, rules));
    }
    for (ordinal, members) in groups.iter().enumerate() {
        plan.add_group(ordinal, members, selection.places)?;
    }
    Ok(plan)
}

impl Plan {
    /// Adds a trial with its verdict. A trial without rows has a place only if the trainer compares rewards.
    fn add(&mut self, candidate: &Candidate<'_>, verdict: Verdict) {
        let facts = &candidate.seen.facts;
        self.counts.failed += u64::from(candidate.is_failed);
        if candidate.seen.has_rows {
            self.verdicts.insert(facts.trial_id.clone(), verdict);
            return;
        }
        self.counts.rewarded_without_tokens += u64::from(verdict.reward.is_some());
        if self.rules.compares() {
            self.rowless.push(Rowless { facts: facts.clone(), verdict });
        }
    }

    /// Adds a group, and fills it up to this number of trials.
    fn add_group(
        &mut self,
        ordinal: usize,
        members: &[&Candidate<'_>],
        places: Option<usize>,
    ) -> Result<(), PlanError> {
        let weighed = Weighed::of(members, &self.rules)?;
        let fillers = places.unwrap_or(0).saturating_sub(members.len());
        let has_place = |member: &&&Candidate<'_>| member.seen.has_rows || self.rules.compares();
        let trials = members.iter().filter(has_place).count() + fillers;
        let group = Some(GroupPlace { ordinal, trials });
        self.counts.alone += u64::from(weighed.rewards.len() == 1 && weighed.has_advantages);

        let missing = members.len() - weighed.rewards.len() + fillers;
        let mut stand_ins = Vec::new();
        if self.rules.compares() {
            stand_ins = stand_in::rewards(&weighed.rewards, missing);
            let shrinks = missing == 1 && mean_and_deviation(&weighed.rewards).is_some();
            self.counts.smaller_deviation += u64::from(shrinks);
        }
        let mut stand_ins = stand_ins.into_iter();
        for (member, advantage) in members.iter().zip(&weighed.advantages) {
            let verdict = verdict(member, &self.rules);
            let stand_in = if verdict.reward.is_none() { stand_ins.next() } else { None };
            self.add(member, Verdict { stand_in, advantage: *advantage, group, ..verdict });
        }
        self.counts.fillers += fillers as u64;
        let advantage = weighed.has_advantages.then_some(0.0);
        let verdict =
            |stand_in| Verdict { reward: None, stand_in: Some(stand_in), is_masked: true, advantage, group };
        let facts = unused_samples(members);
        self.rowless.extend(
            facts.zip(stand_ins).map(|(facts, stand_in)| Rowless { facts, verdict: verdict(stand_in) }),
        );
        Ok(())
    }
}

/// Returns the names of all rewards, also of trials that are not exported: an error lists them.
fn names(candidates: &[Candidate<'_>]) -> BTreeSet<String> {
    candidates.iter().flat_map(|candidate| candidate.seen.facts.rewards.keys().cloned()).collect()
}

/// Returns the facts of samples that the group does not have, without end, for the stand-ins that fill it.
fn unused_samples(members: &[&Candidate<'_>]) -> impl Iterator<Item = RowFacts> {
    let used: HashSet<i32> = members.iter().map(|member| member.seen.facts.sample_index).collect();
    let first = members.first().map(|member| member.seen.facts.clone());
    let unused = (0..i32::MAX).filter(move |index| !used.contains(index));
    unused.zip(std::iter::repeat(first)).filter_map(|(sample_index, first)| {
        let first = first?;
        let group_id = first.group_id.clone().unwrap_or_default();
        Some(RowFacts {
            trial_id: format!("{group_id}-stand-in-{sample_index}"),
            sample_index,
            attempt: 0,
            superseded: false,
            reward: None,
            rewards: BTreeMap::new(),
            reward_valid: false,
            failure_cause: None,
            suspicious: None,
            ..first
        })
    })
}

/// Rejects two different tokenizers. Trials without a known tokenizer do not count.
fn one_tokenizer(taken: &[&Candidate<'_>]) -> Result<(), PlanError> {
    let facts = taken.iter().map(|candidate| &candidate.seen.facts);
    let mut known = facts.filter_map(|facts| Some((&facts.trial_id, facts.tokenizer_hash.as_ref()?)));
    let Some((first, hash)) = known.next() else { return Ok(()) };
    match known.find(|(_, other)| *other != hash) {
        Some((second, other)) => Err(PlanError::Tokenizers {
            first: first.clone(),
            known: hash.clone(),
            second: second.clone(),
            said: other.clone(),
        }),
        None => Ok(()),
    }
}

type Members<'a> = Vec<&'a Candidate<'a>>;

/// Returns the trials of each group, in the order of the groups' first trials, and the trials without a group.
fn grouped<'a>(taken: &[&'a Candidate<'a>]) -> (Vec<Members<'a>>, Members<'a>) {
    let mut ordinals = HashMap::new();
    let (mut groups, mut ungrouped) = (Vec::<Members<'a>>::new(), Vec::new());
    for &candidate in taken {
        let Some(group_id) = candidate.group() else {
            ungrouped.push(candidate);
            continue;
        };
        let ordinal = *ordinals.entry(group_id).or_insert(groups.len());
        match groups.get_mut(ordinal) {
            Some(members) => members.push(candidate),
            None => groups.push(vec![candidate]),
        }
    }
    (groups, ungrouped)
}

/// Returns the verdict of a trial without its group.
fn verdict(candidate: &Candidate<'_>, rules: &Rules) -> Verdict {
    let reward = candidate.counted_reward(rules.failed);
    Verdict { reward, stand_in: None, is_masked: reward.is_none(), advantage: None, group: None }
}

/// The rewards of a group, and the advantages of its trials.
struct Weighed {
    /// The rewards that count, in the order of the trials that have one.
    rewards: Vec<f64>,
    /// The advantage of each trial. A trial without a reward that counts has 0.
    advantages: Vec<Option<f64>>,
    has_advantages: bool,
}

impl Weighed {
    fn of(members: &[&Candidate<'_>], rules: &Rules) -> Result<Self, PlanError> {
        let given: Vec<_> = members.iter().map(|member| member.counted_reward(rules.failed)).collect();
        let rewards: Vec<f64> = given.iter().copied().flatten().collect();
        let Some(advantages) = rules.advantage.of(&rewards) else {
            return Ok(Self { rewards, advantages: vec![None; members.len()], has_advantages: false });
        };
        if advantages.iter().any(|advantage| !advantage.is_finite()) {
            let group_id = members.first().and_then(|member| member.group()).unwrap_or_default().to_owned();
            return Err(PlanError::Advantage { group_id });
        }
        // The advantages exist for counted rewards only, in the same order.
        let mut counted = advantages.into_iter();
        let advantages = given.iter().map(|reward| match reward {
            Some(_) => counted.next(),
            None => Some(0.0),
        });
        Ok(Self { advantages: advantages.collect(), rewards, has_advantages: true })
    }
}

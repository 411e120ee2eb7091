//! Determines the reward of each exported trial, and its advantage within its group.

use std::collections::{BTreeMap, HashMap};

use super::selection::Candidate;
use super::{Plan, PlanError, Verdict};
use crate::export::exporter::GroupPlace;
use crate::export::pipeline::advantage::Advantage;
use crate::export::pipeline::rules::{Failed, Rules};

/// Returns the plan of these candidates.
pub(super) fn weigh(candidates: &[Candidate<'_>], rules: &Rules) -> Result<Plan, PlanError> {
    let mut left_out = BTreeMap::new();
    for why in candidates.iter().filter_map(|candidate| candidate.left_out) {
        *left_out.entry(why).or_default() += 1;
    }
    let taken: Vec<_> = candidates.iter().filter(|candidate| candidate.left_out.is_none()).collect();
    // The selection comes first: trials that are not exported may have other tokenizers.
    one_tokenizer(&taken)?;
    let (groups, ungrouped) = grouped(&taken);
    let mut verdicts = HashMap::new();
    for candidate in ungrouped {
        let trial_id = candidate.seen.facts.trial_id.clone();
        if rules.advantage != Advantage::None {
            return Err(PlanError::Ungrouped { trial_id, advantage: rules.advantage });
        }
        verdicts.insert(trial_id, verdict(candidate, rules));
    }
    let mut alone = 0;
    for (ordinal, members) in groups.iter().enumerate() {
        let group = Some(GroupPlace { ordinal, trials: members.len() });
        let weighed = weigh_group(members, rules)?;
        alone += u64::from(weighed.is_alone);
        for (candidate, advantage) in members.iter().zip(weighed.advantages) {
            let verdict = Verdict { advantage, group, ..verdict(candidate, rules) };
            verdicts.insert(candidate.seen.facts.trial_id.clone(), verdict);
        }
    }
    let failed = taken.iter().filter(|candidate| candidate.is_failed).count() as u64;
    Ok(Plan { rules: rules.clone(), verdicts, left_out, groups: groups.len(), failed, alone })
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
    let (reward, is_masked) = match (candidate.is_failed, rules.failed) {
        (false, _) => (candidate.reward, false),
        (true, Failed::Zero) => (Some(0.0), false),
        // Dropped trials are never exported, so these variants need no case of their own.
        (true, Failed::Mask | Failed::Drop | Failed::DropGroup) => (None, true),
    };
    Verdict { reward, is_masked, advantage: None, group: None }
}

struct Weighed {
    /// The advantages in the order of the members.
    advantages: Vec<Option<f64>>,
    is_alone: bool,
}

/// Computes the advantages of a group. Only trained trials count, and the others have an advantage of 0.
fn weigh_group(members: &[&Candidate<'_>], rules: &Rules) -> Result<Weighed, PlanError> {
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
    // The advantages exist for counted rewards only, in the same order.
    let mut counted = advantages.into_iter();
    let advantages = rewards.iter().map(|reward| match reward {
        Some(_) => counted.next(),
        None => Some(0.0),
    });
    Ok(Weighed { advantages: advantages.collect(), is_alone: counting.len() == 1 })
}

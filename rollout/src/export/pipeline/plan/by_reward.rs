//! Leaves out trials by their reward, for trainers that imitate the exported trials.

use std::collections::HashMap;

use super::LeftOut;
use super::selection::Candidate;
use crate::export::pipeline::rules::Rules;

/// Marks trials with a reward below the limit of the rules, and trials without a reward if there is a limit.
pub(super) fn leave_out_low_rewards(candidates: &mut [Candidate<'_>], rules: &Rules) {
    let Some(limit) = rules.min_reward else { return };
    for candidate in candidates.iter_mut() {
        if candidate.counted_reward(rules.failed).is_none_or(|reward| reward < limit) {
            candidate.left_out.get_or_insert(LeftOut::LowReward);
        }
    }
}

/// A trial with a reward and a row.
struct Ranked {
    reward: f64,
    sample_index: i32,
    /// The index among the candidates.
    index: usize,
}

/// Marks all trials of a group except those with the highest rewards. Among equal rewards, the lower sample index
/// counts as better. Trials without a row or a reward are never among the best. A trial without a group is alone in its
/// own.
pub(super) fn leave_out_all_but_best(candidates: &mut [Candidate<'_>], rules: &Rules) {
    let Some(number) = rules.best_of_group else { return };
    let mut groups: HashMap<(Option<&str>, &str), Vec<Ranked>> = HashMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let facts = &candidate.seen.facts;
        let reward = candidate.counted_reward(rules.failed);
        if let Some(reward) = reward.filter(|_| candidate.left_out.is_none() && candidate.seen.has_rows) {
            let alone = if facts.group_id.is_some() { "" } else { &facts.trial_id };
            let group = groups.entry((facts.group_id.as_deref(), alone)).or_default();
            group.push(Ranked { reward, sample_index: facts.sample_index, index });
        }
    }
    let mut is_best = vec![false; candidates.len()];
    for group in groups.values_mut() {
        group.sort_by(|a, b| b.reward.total_cmp(&a.reward).then(a.sample_index.cmp(&b.sample_index)));
        for Ranked { index, .. } in group.iter().take(number.get()) {
            if let Some(is_best) = is_best.get_mut(*index) {
                *is_best = true;
            }
        }
    }
    for (candidate, is_best) in candidates.iter_mut().zip(is_best) {
        if !is_best {
            candidate.left_out.get_or_insert(LeftOut::NotBest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::super::tests::{left_out, planned, rules, trial};
    use super::super::{LeftOut, Plan};
    use super::*;
    use crate::export::pipeline::advantage::Advantage;
    use crate::export::pipeline::projection::RowFacts;
    use crate::export::pipeline::rules::Failed;

    fn imitated(min_reward: Option<f64>, best_of_group: Option<usize>) -> Rules {
        let best_of_group = best_of_group.and_then(NonZeroUsize::new);
        Rules { advantage: Advantage::None, min_reward, best_of_group, ..rules() }
    }

    fn names(plan: &Plan) -> Vec<&str> {
        let mut names: Vec<_> = plan.verdicts.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    fn three() -> [RowFacts; 3] {
        [trial("a", 0, Some(0.5)), trial("b", 1, Some(1.0)), trial("c", 2, None)]
    }

    #[test]
    fn trials_below_the_limit_or_without_a_reward_are_left_out() {
        let plan = planned(imitated(Some(0.75), None), three()).unwrap();
        assert_eq!((names(&plan), left_out(&plan)), (vec!["b"], vec![(LeftOut::LowReward, 2)]));
        let at = planned(imitated(Some(0.5), None), three()).unwrap();
        assert_eq!(names(&at), ["a", "b"], "the limit itself is high enough");
        let zero = Rules { failed: Failed::Zero, ..imitated(Some(0.0), None) };
        assert_eq!(names(&planned(zero, three()).unwrap()), ["a", "b", "c"]);
    }

    #[test]
    fn the_best_of_a_group_are_exported() {
        let best = |number, trials: [RowFacts; 3]| {
            let plan = planned(imitated(None, Some(number)), trials).unwrap();
            (names(&plan).join(" "), left_out(&plan))
        };
        assert_eq!(best(1, three()), ("b".to_owned(), vec![(LeftOut::NotBest, 2)]));
        assert_eq!(best(3, three()), ("a b".to_owned(), vec![(LeftOut::NotBest, 1)]), "c has no reward");
        let equal = [trial("a", 0, Some(1.0)), trial("b", 1, Some(1.0)), trial("c", 2, Some(0.0))];
        assert_eq!(best(1, equal).0, "a", "the first among equals");
        let alone = three().map(|facts| RowFacts { group_id: None, group_size: None, ..facts });
        assert_eq!(best(1, alone).0, "a b");
    }
}

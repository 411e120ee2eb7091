//! Stand-ins for a trainer that requires a reward, or a row, of every trial of a group.
//!
//! A stand-in trains nothing, but the trainer includes its reward in the statistics of the group. [`rewards`] chooses
//! numbers that leave these statistics as they are without the stand-ins.

use std::collections::BTreeMap;
use std::iter::repeat_n;

use super::advantage::mean_and_deviation;
use super::projection::RowFacts;
use crate::branch_cause::BranchCause;
use crate::origin::Origin;
use crate::row::{RolloutRow, SCHEMA_VERSION};

/// Returns `count` rewards. Together with `rewards` they have the mean of `rewards`. With two or more of them, they
/// also have the standard deviation of `rewards` (of n - 1 degrees of freedom).
///
/// A single stand-in cannot preserve both. It is the mean, and the deviation becomes smaller. `rewards` must not be
/// empty.
pub(crate) fn rewards(rewards: &[f64], count: usize) -> Vec<f64> {
    let moments = mean_and_deviation(rewards).filter(|&(_, deviation)| deviation > 0.0);
    let Some((mean, deviation)) = moments else {
        // The first reward instead of the mean, which rounding could make a different number than the rewards.
        return repeat_n(rewards.first().copied().unwrap_or_default(), count).collect();
    };
    let at =
        |distances: &[f64]| distances.iter().map(|distance| mean + distance * deviation).collect::<Vec<_>>();
    // Each list of distances has the sum 0, and squares with its length as their sum.
    let wide = 1.5_f64.sqrt();
    let (mut made, pairs) = match (count, count % 2) {
        (1, _) => return vec![mean],
        (_, 0) => (Vec::new(), count / 2),
        _ => (at(&[wide, -wide, 0.0]), (count - 3) / 2),
    };
    made.extend(repeat_n(at(&[1.0, -1.0]), pairs).flatten());
    made
}

/// Returns a row of two tokens that trains nothing, for a trial that has no row of its own.
///
/// Both tokens have id 0, the first of every vocabulary. One is the prompt and one the answer, because trainers reject
/// an empty part.
pub(crate) fn row(facts: &RowFacts) -> RolloutRow {
    RolloutRow {
        schema_version: SCHEMA_VERSION.to_owned(),
        trial_id: facts.trial_id.clone(),
        group_id: facts.group_id.clone(),
        group_size: facts.group_size,
        sample_index: facts.sample_index,
        attempt: facts.attempt,
        superseded: facts.superseded,
        task_id: facts.task_id.clone(),
        environment: None,
        branch_index: 0,
        num_branches: 1,
        is_last_branch: true,
        branch_cause: BranchCause::FirstCall.as_str().to_owned(),
        branch_reprefilled: None,
        token_ids: vec![0, 0],
        sampled_mask: vec![0, 0],
        trainable_mask: vec![0, 0],
        loss_mask: vec![0, 0],
        logprobs: vec![0.0, 0.0],
        token_version: vec![-1, -1],
        version_labels: BTreeMap::new(),
        prompt_len: 1,
        reward: facts.reward,
        advantage: None,
        rewards: facts.rewards.clone(),
        reward_valid: facts.reward_valid,
        failure_cause: None,
        reward_version: None,
        suspicious: facts.suspicious.clone(),
        is_truncated: false,
        stop_reason: None,
        status: "failed".to_owned(),
        model: String::new(),
        tokenizer_hash: facts.tokenizer_hash.clone(),
        vocab_size: None,
        logprobs_mode: String::new(),
        has_media: false,
        origin: Some(Origin::Captured.as_str().to_owned()),
        calls: Vec::new(),
    }
}

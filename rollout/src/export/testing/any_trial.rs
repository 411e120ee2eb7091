//! Random trials for the property tests of formats: retries, sub-agents, masked calls, several policy versions,
//! arbitrary logprob bits, complete groups, failed trials.

use proptest::collection::vec;
use proptest::prelude::*;

use super::fixture::trial;
use crate::call::{Call, CallRole};
use crate::export::exporter::{GroupPlace, Trial};
use crate::forest::tests::call;
use crate::row::RolloutRow;
use crate::token::Logprob;

/// One call. It has the earlier answer that it extends (if any), the new ids, the sampled ids, and the bits of the
/// first logprob. The last two fields are the increase of the policy version and whether the call is a title.
type Turn = (Option<prop::sample::Index>, Vec<u32>, Vec<u32>, u32, i32, bool);

fn turn() -> impl Strategy<Value = Turn> {
    let ids = || vec(0..50_u32, 1..4);
    (
        proptest::option::weighted(0.8, any::<prop::sample::Index>()),
        ids(),
        ids(),
        any::<u32>(),
        0..2,
        prop::bool::weighted(0.1),
    )
}

fn calls(turns: &[Turn]) -> Vec<Call> {
    let mut sequences: Vec<Vec<u32>> = Vec::new();
    let mut version = 0;
    let mut calls = Vec::new();
    for ((parent, tail, sampled, bits, later, is_title), n) in turns.iter().zip(0..) {
        let parent = parent
            .filter(|_| !sequences.is_empty())
            .map(|index| sequences[index.index(sequences.len())].clone());
        // A unique first id, so that no prompt of one conversation begins like another by chance.
        let prompt = [parent.unwrap_or_else(|| vec![100 + n]), tail.clone()].concat();
        let mut call = call(n, &prompt, &[sampled]);
        // The sign bit is set, because no logprob is above 0.
        let logprob = Logprob::try_from(f32::from_bits(bits | 1 << 31)).ok();
        call.choices[0].logprobs[0] = logprob;
        version += later;
        call.policy_version = version;
        call.role = if *is_title { CallRole::Title } else { CallRole::Main };
        sequences.push([prompt, sampled.clone()].concat());
        calls.push(call);
    }
    calls
}

/// A complete group of one to three trials with about one to three branches. Some trials are masked and have no reward,
/// and at least one is trained.
pub(crate) fn any_group() -> impl Strategy<Value = Vec<Trial>> {
    let trial = (vec(turn(), 1..6), proptest::option::weighted(0.8, -1.0..1.0_f64));
    vec(trial, 1..4)
        .prop_map(|trials| {
            let group = Some(GroupPlace { ordinal: 0, trials: trials.len() });
            let made = trials.iter().zip(0..).map(|((turns, reward), index)| {
                let mut trial = trial_of(index, *reward, &calls(turns));
                trial.group = group;
                let size = group.and_then(|group| i32::try_from(group.trials).ok());
                trial.rows.iter_mut().for_each(|row| row.group_size = size);
                trial
            });
            made.collect()
        })
        .prop_filter("some token is trained", |trials: &Vec<Trial>| {
            trials.iter().flat_map(|trial| &trial.rows).any(|row| row.loss_mask.contains(&1))
        })
}

fn trial_of(index: u32, reward: Option<f64>, calls: &[Call]) -> Trial {
    let mut trial =
        trial(&format!("t{index}"), index, reward.unwrap_or_default(), 0.5 - f64::from(index), calls);
    if reward.is_none() {
        trial.reward = None;
        trial.stand_in = Some(0.25);
        trial.advantage = None;
        for row in &mut trial.rows {
            row.reward = None;
            row.trainable_mask.fill(0);
            row.loss_mask.fill(0);
        }
    }
    trial
}

/// Returns the rows of a trial with trained tokens, each up to its last trained token.
pub(crate) fn trained_rows(trial: &Trial) -> Vec<RolloutRow> {
    let trained = trial.rows.iter().filter(|row| row.loss_mask.contains(&1)).cloned();
    let cut = trained.map(|mut row| {
        while row.loss_mask.last() == Some(&0) {
            row.loss_mask.pop();
        }
        let length = row.loss_mask.len();
        row.token_ids.drain(length..);
        row.logprobs.drain(length..);
        row.token_version.drain(length..);
        row
    });
    cut.collect()
}

/// Returns the rows that a format of [`crate::export::shared::compared`] writes for a trial.
pub(crate) fn compared_rows(trial: &Trial) -> Vec<RolloutRow> {
    let trained = trained_rows(trial);
    if trained.is_empty() { vec![trial.rows[0].clone()] } else { trained }
}

/// Returns the trial with only its first branch, as after `--on-fork longest`.
pub(crate) fn one_branch(mut trial: Trial) -> Trial {
    trial.rows.truncate(1);
    trial
}

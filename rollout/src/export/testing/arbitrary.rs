//! Trials of any shape for tests of formats (turns, forks, new conversations, empty answers, missing logprobs), failed
//! trials, and the output of an exporter for these.

use proptest::collection::vec;
use proptest::prelude::*;

use super::fixture;
use super::read_back::{run, told};
use crate::export::exporter::{ExportError, Exporter, GroupPlace, Trial};
use crate::forest::tests::call;
use crate::token::Logprob;

/// The call that a call extends (`None` for a new conversation), its new ids, and its answer with the known logprobs.
type Drawn = (Option<prop::sample::Index>, Vec<u32>, Vec<(u32, Option<f32>)>);

fn drawn() -> impl Strategy<Value = Drawn> {
    let logprob = prop::option::weighted(0.95, -30.0_f32..=0.0);
    let parent = prop::option::weighted(0.9, any::<prop::sample::Index>());
    (parent, vec(0..9_u32, 1..5), vec((0..9_u32, logprob), 0..5))
}

/// A trial with a reward, an advantage, and at least one row, in its own group.
pub(crate) fn trial() -> impl Strategy<Value = Trial> {
    let numbers = (-2.0..2.0_f64, -2.0..2.0_f64, 0.1..2.0_f64);
    (vec(drawn(), 1..8), numbers).prop_filter_map("it has a sampled token", |(drawn, numbers)| {
        let trial = built(&drawn, numbers);
        trial.rows.iter().any(|row| row.sampled_mask.contains(&1)).then_some(trial)
    })
}

fn built(drawn: &[Drawn], (reward, advantage, temperature): (f64, f64, f64)) -> Trial {
    let mut calls = Vec::new();
    let mut ends: Vec<Vec<u32>> = Vec::new();
    for (n, (parent, added, answer)) in (0..).zip(drawn) {
        let mut prompt =
            parent.filter(|_| !ends.is_empty()).map_or_else(Vec::new, |parent| parent.get(&ends).clone());
        prompt.extend(added);
        let ids: Vec<u32> = answer.iter().map(|(id, _)| *id).collect();
        let mut call = call(n, &prompt, &[&ids]);
        call.sampling.temperature = Some(temperature);
        call.policy_version = i32::try_from(n / 2).unwrap();
        call.choices[0].logprobs =
            answer.iter().map(|(_, logprob)| Logprob::try_from(logprob.unwrap_or(f32::NAN)).ok()).collect();
        ends.push([prompt, ids].concat());
        calls.push(call);
    }
    let mut trial = fixture::trial("any", 0, reward, advantage, &calls);
    trial.rows.iter_mut().for_each(|row| row.group_size = Some(1));
    Trial { group: Some(GroupPlace { ordinal: 0, trials: 1 }), ..trial }
}

/// Returns the trial as a failed trial that is only present for its group.
pub(crate) fn masked(mut trial: Trial) -> Trial {
    for row in &mut trial.rows {
        row.trainable_mask.fill(0);
        row.loss_mask.fill(0);
        row.reward = None;
        row.reward_valid = false;
        row.failure_cause = Some("AgentTimeoutError".into());
    }
    Trial { reward: None, advantage: None, ..trial }
}

/// Exports trials with the exporter that `new` makes on `out`. Returns the messages of the omissions.
pub(crate) fn exported<'a, E: Exporter>(
    out: &'a mut Vec<u8>,
    new: impl FnOnce(&'a mut Vec<u8>) -> E,
    trials: impl IntoIterator<Item = Trial>,
) -> Result<Vec<String>, ExportError> {
    Ok(told(&run(new(out), trials)?))
}

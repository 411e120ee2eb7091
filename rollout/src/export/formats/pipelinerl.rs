//! PipelineRL (commit 58d3934, not in a package index): one line per run of trained tokens of a call, a `TrainingText`.
//!
//! `input_ids` has the branch up to the end of the run. `labels` repeats the ids of the run, and has −100 for all earlier
//! tokens. `logprobs` has the logprobs of the run alone: PipelineRL aligns these with the end of the labels, so a text of
//! several answers would get the logprobs of other tokens. `prompt_tokens` and `output_tokens` are the lengths of both
//! parts. `text` is empty, because the trainer uses the ids. `finished` is false if the length limit ended the call.
//! `group_id` is the group. `metadata` has what the preprocessor reads, which is `model_version` (the oldest policy version
//! of the run), `rollout_index` (the sample's index) and `step_index` (the line's index in its trial), and identifies the
//! line.
//!
//! In an export with advantages, which is the default, `reward` is the advantage. Such a file must be trained with
//! `finetune.rl.use_advantages: false`, with which the losses `ppo` and `reinforce` use `reward` unchanged. In an export
//! without advantages, PipelineRL compares the reward of each text with those of the other trials' texts that have the same `step_index`, less
//! the text itself. A text that no other trial has an equal for gets advantage 0. Every group must have `attempts` trials.
//! A trial without a reward therefore has a line with no label and `step_index` −1: it holds the trial's place and is
//! compared with nothing. A trial with a reward and without trained tokens has a line with no label and `step_index` 0.
//! PipelineRL's reference model (`kl_coef` above 0) accepts no line without labels.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::export::exporter::ExportError;
use crate::export::shared::call_run::{CallRun, call_runs};
use crate::export::shared::compared::{ComparedExporter, ComparedShape, ComparedTrial, TrialLines};
use crate::export::shared::naming::{Samples, group_name};
use crate::export::shared::one_number::OneNumber;
use crate::export::shared::policy_number::PolicyNumbers;
use crate::export::shared::sequence::Sequence;
use crate::row::RolloutRow;

/// Writes training texts.
pub type PipelineRlExporter<W> = ComparedExporter<W, PipelineRl>;

/// The shape of a training text.
#[derive(Debug, Default)]
pub struct PipelineRl {
    samples: Samples,
    reward: OneNumber,
}

/// The label of a token that is not trained.
const NO_LABEL: i32 = -100;
/// The step of a trial without a reward, which no other trial has.
const COMPARED_WITH_NOTHING: i64 = -1;

#[derive(Serialize)]
struct TrainingText<'a> {
    text: &'static str,
    n_predicted: usize,
    reward: f64,
    logprobs: &'a [f32],
    ref_logprobs: [f32; 0],
    input_ids: &'a [i32],
    labels: Vec<i32>,
    group_id: &'a str,
    finished: bool,
    prompt_tokens: usize,
    output_tokens: usize,
    metadata: Metadata<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    model_version: i64,
    rollout_index: i32,
    step_index: i64,
    trial_id: &'a str,
    task_id: &'a str,
    branch_index: i32,
    call_id: &'a str,
    reward: Option<f64>,
    rewards: &'a BTreeMap<String, f64>,
}

impl ComparedShape for PipelineRl {
    fn write<W: Write>(
        &mut self,
        trial: &ComparedTrial,
        out: &mut TrialLines<'_, W>,
    ) -> Result<(), ExportError> {
        let Some(first) = trial.rows.first() else { return Ok(()) };
        let sequences = trial.rows.iter().map(Sequence::of).collect::<Result<Vec<_>, _>>()?;
        self.samples.add(first)?;
        let reward = if trial.is_stand_in { 0.0 } else { self.reward.of(trial)? };
        let numbers = PolicyNumbers::of(&trial.rows);
        let mut step_index = 0;
        for run in trial.rows.iter().flat_map(call_runs) {
            let text = text(&run, trial, reward, (step_index, run.oldest_version(numbers)));
            out.lines.write(&first.trial_id, &text)?;
            step_index += 1;
        }
        let untrained = sequences.first().filter(|_| step_index == 0);
        untrained.map_or(Ok(()), |sequence| {
            let (oldest, _) = numbers.span(sequence.row);
            out.lines.write(&first.trial_id, &place(sequence, trial, reward, oldest))
        })
    }
}

fn text<'a>(
    run: &CallRun<'a>,
    trial: &ComparedTrial,
    reward: f64,
    (step_index, model_version): (i64, i64),
) -> TrainingText<'a> {
    let (prompt, ids) = (run.prompt_ids(), run.ids());
    TrainingText {
        text: "",
        n_predicted: 0,
        reward,
        logprobs: run.logprobs(),
        ref_logprobs: [],
        input_ids: run.all_ids(),
        labels: prompt.iter().map(|_| NO_LABEL).chain(ids.iter().copied()).collect(),
        group_id: group_name(run.row),
        finished: run.finish_reason() != Some("length"),
        prompt_tokens: prompt.len(),
        output_tokens: ids.len(),
        metadata: metadata(run.row, trial, run.call_id(), (step_index, model_version)),
    }
}

/// Returns the line of a trial in which nothing is trained. It has the prompt alone.
fn place<'a>(
    sequence: &Sequence<'a>,
    trial: &ComparedTrial,
    reward: f64,
    model_version: i64,
) -> TrainingText<'a> {
    let step_index = if trial.is_stand_in { COMPARED_WITH_NOTHING } else { 0 };
    TrainingText {
        text: "",
        n_predicted: 0,
        reward,
        logprobs: &[],
        ref_logprobs: [],
        input_ids: sequence.prompt,
        labels: vec![NO_LABEL; sequence.prompt.len()],
        group_id: group_name(sequence.row),
        finished: true,
        prompt_tokens: sequence.prompt.len(),
        output_tokens: 0,
        metadata: metadata(sequence.row, trial, "", (step_index, model_version)),
    }
}

fn metadata<'a>(
    row: &'a RolloutRow,
    trial: &ComparedTrial,
    call_id: &'a str,
    (step_index, model_version): (i64, i64),
) -> Metadata<'a> {
    Metadata {
        model_version,
        rollout_index: row.sample_index,
        step_index,
        trial_id: &row.trial_id,
        task_id: &row.task_id,
        branch_index: row.branch_index,
        call_id,
        reward: (!trial.is_stand_in).then_some(trial.reward),
        rewards: &row.rewards,
    }
}

#[cfg(test)]
mod tests;

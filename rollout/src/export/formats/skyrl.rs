//! SkyRL (package `skyrl` 0.4.0): one line per trial, a step-wise `GeneratorOutput` of one trajectory.
//!
//! A step is a branch, as SkyRL's own `merge_stepwise_output` makes from the turns of a branch. The observations
//! between turns are tokens of the response with a loss mask of 0. `concatenate_generator_outputs` with
//! `step_wise=True` accepts a list of lines, after each entry of `trajectory_ids` becomes a `TrajectoryID`. It ignores
//! the key `trial_id`, which is not a list. The keys are `prompt_token_ids`, `response_ids`, `rewards`, `loss_masks`,
//! `stop_reasons`, `rollout_logprobs`, `trajectory_ids` and `is_last_step`. Each is a list with an entry per step.
//!
//! SkyRL computes the advantage from the reward of the last step and gives it to every step of the trajectory. So a
//! trial counts once in its group, with any number of forks. The reward is nevertheless on every step, because the
//! filter of groups without variance reads all of these. A loss that is averaged per sequence counts a forked trial
//! once per branch. A loss per token does not.

use std::io::Write;

use serde::Serialize;

use crate::export::exporter::ExportError;
use crate::export::shared::compared::{ComparedExporter, ComparedShape, ComparedTrial, TrialLines};
use crate::export::shared::naming::{Samples, group_name};
use crate::export::shared::row_queries::has_versions;
use crate::export::shared::sequence::Sequence;

/// Writes step-wise generator output.
pub type SkyrlExporter<W> = ComparedExporter<W, Skyrl>;

/// The shape of `GeneratorOutput`.
#[derive(Debug, Default)]
pub struct Skyrl {
    samples: Samples,
}

#[derive(Serialize)]
struct SkyRlLine<'a> {
    trial_id: &'a str,
    prompt_token_ids: Vec<&'a [i32]>,
    response_ids: Vec<&'a [i32]>,
    rewards: Vec<f64>,
    loss_masks: Vec<&'a [u8]>,
    stop_reasons: Vec<&'a str>,
    rollout_logprobs: Vec<&'a [f32]>,
    trajectory_ids: Vec<TrajectoryId<'a>>,
    is_last_step: Vec<bool>,
}

#[derive(Clone, Copy, Serialize)]
struct TrajectoryId<'a> {
    instance_id: &'a str,
    repetition_id: i32,
}

impl ComparedShape for Skyrl {
    fn write<W: Write>(
        &mut self,
        trial: &ComparedTrial,
        out: &mut TrialLines<'_, W>,
    ) -> Result<(), ExportError> {
        let steps = trial.rows.iter().map(Sequence::of).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = steps.first() else { return Ok(()) };
        // A second trajectory with this name would count as a further part of the first one.
        self.samples.add(first.row)?;
        out.leave_out_advantage(trial);
        out.leave_out_rewards_by_name(first.row);
        let versioned = steps.iter().filter(|step| has_versions(step.row)).count();
        out.tally.add("branches: the policy versions of their tokens", versioned);
        let name = TrajectoryId { instance_id: group_name(first.row), repetition_id: first.row.sample_index };
        let line = SkyRlLine {
            trial_id: &first.row.trial_id,
            prompt_token_ids: steps.iter().map(|step| step.prompt).collect(),
            response_ids: steps.iter().map(|step| step.response).collect(),
            // On every step, because the filter of groups without variance reads the rewards of all steps.
            rewards: vec![trial.reward; steps.len()],
            loss_masks: steps.iter().map(|step| step.mask).collect(),
            stop_reasons: steps.iter().map(stop_reason).collect(),
            rollout_logprobs: steps.iter().map(|step| step.logprobs).collect(),
            trajectory_ids: vec![name; steps.len()],
            is_last_step: (1..=steps.len()).map(|step| step == steps.len()).collect(),
        };
        out.lines.write(&first.row.trial_id, &line)
    }
}

/// Returns vLLM's stop reason, or else the branch's status. SkyRL requires a text and rejects null.
fn stop_reason<'a>(step: &Sequence<'a>) -> &'a str {
    step.row.stop_reason.as_deref().unwrap_or(&step.row.status)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::export::exporter::Trial;
    use crate::export::testing::any_trial::{any_group, compared_rows};
    use crate::export::testing::fixture::{forked, straight};
    use crate::export::testing::read_back::{bits, float_bits, ints, objects, told, written};

    #[test]
    fn a_branch_is_a_step_and_the_group_names_the_instance() {
        let mut fork = forked();
        fork.rows.iter_mut().for_each(|row| drop(row.version_labels.insert("0".into(), "step-7".into())));
        let (lines, omissions) = written(SkyrlExporter::new, [straight(), fork]).unwrap();
        let expected = [
            r#"{"trial_id":"straight","prompt_token_ids":[[1,2]],"response_ids":[[3,4,5,6]],"rewards":[1.0],"loss_masks":[[1,0,1,1]],"stop_reasons":["stop"],"rollout_logprobs":[[-3.0,0.0,-5.0,-6.0]],"trajectory_ids":[{"instance_id":"group","repetition_id":0}],"is_last_step":[true]}"#,
            r#"{"trial_id":"forked","prompt_token_ids":[[1,2],[1,2]],"response_ids":[[3,4,5],[3,7,8,9]],"rewards":[0.0,0.0],"loss_masks":[[1,0,1],[0,0,1,1]],"stop_reasons":["stop","stop"],"rollout_logprobs":[[-3.0,0.0,-5.0],[-3.0,0.0,-8.0,-9.0]],"trajectory_ids":[{"instance_id":"group","repetition_id":1},{"instance_id":"group","repetition_id":1}],"is_last_step":[false,true]}"#,
        ];
        assert_eq!(lines, expected);
        let expected = [
            "2 trials: their advantage, which the trainer works out itself",
            "2 branches: the policy versions of their tokens",
        ];
        assert_eq!(told(&omissions), expected);
    }

    #[test]
    fn two_attempts_at_one_sample_would_be_one_trajectory() {
        let again = || {
            let mut trial = straight();
            trial.rows[0].trial_id = "again".into();
            trial
        };
        let refusal = written(SkyrlExporter::new, [straight(), again()]).unwrap_err().to_string();
        assert!(
            refusal.starts_with("trial again, branch 0: another trial is sample 0 of group \"group\""),
            "{refusal}"
        );
    }

    #[test]
    fn a_trial_of_no_group_is_its_own_instance_and_a_broken_off_answer_has_a_stop_reason() {
        let mut trial = Trial { group: None, ..straight() };
        trial.rows[0].group_id = None;
        trial.rows[0].stop_reason = None;
        trial.rows[0].status = "aborted".into();
        let (lines, _) = written(SkyrlExporter::new, [trial]).unwrap();
        assert!(lines[0].contains(r#""trajectory_ids":[{"instance_id":"straight","repetition_id":0}]"#));
        assert!(lines[0].contains(r#""stop_reasons":["aborted"]"#));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(group in any_group()) {
            let lines = objects(SkyrlExporter::new, group.clone());
            prop_assert_eq!(lines.len(), group.len());
            for (line, trial) in lines.iter().zip(&group) {
                let rows = compared_rows(trial);
                let expected = trial.reward.or(trial.stand_in);
                prop_assert_eq!(line["is_last_step"].as_array().unwrap().len(), rows.len());
                for (step, row) in rows.into_iter().enumerate() {
                    let prompt = ints(&line["prompt_token_ids"][step]);
                    let start = prompt.len();
                    prop_assert_eq!(row.loss_mask[..start].iter().max(), Some(&0));
                    prop_assert_eq!(&[prompt, ints(&line["response_ids"][step])].concat(), &row.token_ids);
                    prop_assert_eq!(&line["loss_masks"][step], &json!(row.loss_mask[start..]));
                    prop_assert_eq!(float_bits(&line["rollout_logprobs"][step]), bits(&row.logprobs[start..]));
                    prop_assert_eq!(line["rewards"][step].as_f64(), expected);
                }
            }
        }
    }
}

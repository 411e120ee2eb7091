//! OpenRLHF (package `openrlhf` 0.11.2): one line per trial, the response that an agent executor's `execute` returns.
//!
//! `observation_tokens` and `rollout_log_probs` have the branch up to its last trained token, unshifted (the trainer
//! drops the first of each). `action_ranges` are the trained runs `[start, end)`. The line also has `reward`, `scores`
//! and `truncated`. `scores` is the reward, which the trainer reports and filters by. `reward` is the number that it
//! trains on: the reward, or in an export with advantages the advantage. The estimator `dr_grpo`, which subtracts the
//! mean of a group and nothing else, trains with these unchanged, because their mean is 0. `prompt` and `label`, which are text, are empty. `images` and `mm_train_inputs`
//! are null, and `extra_logs` is empty. `trial_id`, `task_id`, `group_id` and `sample_index` identify the trial.
//!
//! The trainer compares each `n_samples_per_prompt` consecutive lines. For this reason a trial with several branches is
//! rejected, and every group has the same number of lines.

use std::io::Write;
use std::ops::Range;

use serde::{Serialize, Serializer};

use crate::export::exporter::ExportError;
use crate::export::shared::compared::{ComparedExporter, ComparedShape, ComparedTrial, TrialLines};
use crate::export::shared::positions::Positions;
use crate::export::shared::runs::trained_runs;
use crate::export::shared::sequence::Sequence;

/// Writes responses of an agent executor.
pub type OpenrlhfExporter<W> = ComparedExporter<W, Openrlhf>;

/// The shape of an executor's response.
#[derive(Debug, Default)]
pub struct Openrlhf {
    positions: Positions,
}

#[derive(Serialize)]
struct OpenRlhfLine<'a> {
    prompt: &'static str,
    label: &'static str,
    images: (),
    mm_train_inputs: (),
    reward: f64,
    scores: f64,
    observation_tokens: &'a [i32],
    #[serde(serialize_with = "pairs")]
    action_ranges: Vec<Range<usize>>,
    rollout_log_probs: &'a [f32],
    truncated: bool,
    extra_logs: Empty,
    trial_id: &'a str,
    task_id: &'a str,
    group_id: Option<&'a str>,
    sample_index: i32,
}

#[derive(Serialize)]
struct Empty {}

fn pairs<S: Serializer>(ranges: &[Range<usize>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ranges.iter().map(|range| (range.start, range.end)))
}

impl ComparedShape for Openrlhf {
    fn write<W: Write>(
        &mut self,
        trial: &ComparedTrial,
        out: &mut TrialLines<'_, W>,
    ) -> Result<(), ExportError> {
        // The position in the file defines the group, so the trial must be exactly one line.
        let Some(Sequence { row, .. }) = self.positions.take(trial)? else { return Ok(()) };
        out.leave_out_versions(row);
        out.leave_out_rewards_by_name(row);
        let line = OpenRlhfLine {
            prompt: "",
            label: "",
            images: (),
            mm_train_inputs: (),
            reward: trial.advantage.unwrap_or(trial.reward),
            scores: trial.reward,
            observation_tokens: &row.token_ids,
            action_ranges: trained_runs(&row.loss_mask).collect(),
            rollout_log_probs: &row.logprobs,
            truncated: row.stop_reason.as_deref() == Some("length"),
            extra_logs: Empty {},
            trial_id: &row.trial_id,
            task_id: &row.task_id,
            group_id: row.group_id.as_deref(),
            sample_index: row.sample_index,
        };
        out.lines.write(&row.trial_id, &line)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::export::exporter::{GroupPlace, Trial};
    use crate::export::testing::any_trial::{any_group, compared_rows, one_branch};
    use crate::export::testing::fixture::{forked, straight};
    use crate::export::testing::read_back::{bits, float_bits, ints, objects, told, written};

    #[test]
    fn what_is_trained_is_told_as_ranges() {
        let mut trial = Trial { group: None, advantage: None, ..straight() };
        trial.rows[0].version_labels.insert("0".into(), "step-7".into());
        let (lines, omissions) = written(OpenrlhfExporter::new, [trial]).unwrap();
        let expected = [
            r#"{"prompt":"","label":"","images":null,"mm_train_inputs":null,"reward":1.0,"scores":1.0,"observation_tokens":[1,2,3,4,5,6],"action_ranges":[[2,3],[4,6]],"rollout_log_probs":[0.0,0.0,-3.0,0.0,-5.0,-6.0],"truncated":false,"extra_logs":{},"trial_id":"straight","task_id":"org/task","group_id":"group","sample_index":0}"#,
        ];
        assert_eq!(lines, expected);
        assert_eq!(told(&omissions), ["1 trials: the policy versions of their tokens"]);
    }

    #[test]
    fn an_advantage_is_in_the_place_of_the_reward_and_not_of_the_score() {
        let lines = objects(OpenrlhfExporter::new, [straight(), one_branch(forked())]);
        assert_eq!((&lines[0]["reward"], &lines[1]["reward"]), (&0.5.into(), &(-0.5).into()));
        assert_eq!((&lines[0]["scores"], &lines[1]["scores"]), (&1.0.into(), &0.0.into()));
    }

    #[test]
    fn a_second_branch_would_shift_every_group_after_it() {
        let refusal = written(OpenrlhfExporter::new, [straight(), forked()]).unwrap_err().to_string();
        assert!(refusal.starts_with("trial forked, branch 0: 2 of its branches are trained"), "{refusal}");
        let mut half = forked();
        half.rows[0].loss_mask.fill(0);
        let lines = objects(OpenrlhfExporter::new, [straight(), half]);
        assert_eq!(ints(&lines[1]["observation_tokens"]), [1, 2, 3, 7, 8, 9]);
    }

    #[test]
    fn groups_of_two_sizes_are_refused() {
        let group = Some(GroupPlace { ordinal: 1, trials: 1 });
        let mut small = Trial { group, ..straight() };
        small.rows[0].group_size = None;
        let refusal = written(OpenrlhfExporter::new, [straight(), one_branch(forked()), small])
            .unwrap_err()
            .to_string();
        assert!(refusal.contains("its group has 1 trials here and the first one 2"), "{refusal}");
    }

    #[test]
    fn only_the_length_limit_truncates() {
        let mut trial = Trial { group: None, ..straight() };
        trial.rows[0].is_truncated = true;
        trial.rows[0].stop_reason = Some("abort".into());
        assert_eq!(objects(OpenrlhfExporter::new, [trial.clone()])[0]["truncated"], false);
        trial.rows[0].stop_reason = Some("length".into());
        assert_eq!(objects(OpenrlhfExporter::new, [trial])[0]["truncated"], true);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(group in any_group()) {
            let group: Vec<_> = group.into_iter().map(one_branch).collect();
            prop_assume!(group.iter().any(|trial| trial.rows[0].loss_mask.contains(&1)));
            let lines = objects(OpenrlhfExporter::new, group.clone());
            prop_assert_eq!(lines.len(), group.len());
            for (line, trial) in lines.iter().zip(&group) {
                let row = compared_rows(trial).remove(0);
                prop_assert_eq!(&ints(&line["observation_tokens"]), &row.token_ids);
                prop_assert_eq!(float_bits(&line["rollout_log_probs"]), bits(&row.logprobs));
                let mut mask = vec![0; row.token_ids.len()];
                for range in line["action_ranges"].as_array().unwrap() {
                    let [start, end] = ints(range)[..] else { panic!("{range}") };
                    mask[start as usize..end as usize].fill(1);
                }
                prop_assert_eq!(&mask, &row.loss_mask);
                prop_assert_eq!(line["reward"].as_f64(), trial.advantage.or(trial.stand_in));
                prop_assert_eq!(line["scores"].as_f64(), trial.reward.or(trial.stand_in));
            }
        }
    }
}

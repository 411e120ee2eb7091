//! ROLL (commit 8eb27cc, not in a package index): one line per branch, a row of the `DataProto` of its agentic pipeline.
//!
//! `input_ids` and `response_mask` (1 for trained tokens) have the branch up to its last trained token, unshifted.
//! `infer_logprobs` lack the first token, as in ROLL: its entry `i` is the logprob of token `i + 1`. `prompt_len` is the
//! number of tokens before the first sampled one. `score` is the number that ROLL puts on the last token. From these the
//! reader makes `attention_mask`, `position_ids`, `prompt_mask` and `scores`, and pads all on the right to
//! `sequence_length`. `non_tensor` has the entries of `non_tensor_batch`: `traj_group_id` is the group and `traj_id` the
//! trial (with `_bN` behind it, as ROLL names branches, if several are exported). `episode_scores` and `step_scores` are
//! the reward.
//!
//! ROLL compares the scores of the rows of one `traj_group_id` (`reward_normalization.grouping`), with the sample standard
//! deviation, and a trial counts once per row. For this reason a trial with several branches is rejected if `score` is the
//! reward. A group may have any size, so a trial without a reward has no line. A row without trained tokens counts with
//! its reward.
//!
//! In an export with advantages (`--advantage grpo`), `score` is the advantage, the same for each branch of a trial. Such a
//! file must be trained with `reward_normalization.method: identity`, which leaves scores unchanged, and `gamma` 1.

use std::io::Write;

use serde::Serialize;

use crate::export::exporter::ExportError;
use crate::export::shared::compared::{ComparedExporter, ComparedShape, ComparedTrial, TrialLines};
use crate::export::shared::naming::{group_name, group_number};
use crate::export::shared::one_number::OneNumber;
use crate::export::shared::positions::only_branch;
use crate::export::shared::sequence::Sequence;
use crate::row::RolloutRow;

/// Writes rows of a `DataProto`.
pub type RollExporter<W> = ComparedExporter<W, Roll>;

/// The shape of a row.
#[derive(Debug, Default)]
pub struct Roll {
    score: OneNumber,
}

#[derive(Serialize)]
struct RollLine<'a> {
    input_ids: &'a [i32],
    response_mask: &'a [u8],
    infer_logprobs: &'a [f32],
    prompt_len: usize,
    score: f64,
    non_tensor: NonTensor<'a>,
}

#[derive(Serialize)]
struct NonTensor<'a> {
    env_ids: i32,
    group_ids: i64,
    traj_group_id: &'a str,
    traj_id: String,
    tags: &'static str,
    step_scores: f64,
    episode_scores: f64,
}

impl ComparedShape for Roll {
    fn write<W: Write>(
        &mut self,
        trial: &ComparedTrial,
        out: &mut TrialLines<'_, W>,
    ) -> Result<(), ExportError> {
        let Some(first) = trial.rows.first() else { return Ok(()) };
        if out.leaves_out(trial) {
            return Ok(());
        }
        let score = self.score.of(trial)?;
        // A score counts once per row. An advantage does not depend on the number of rows.
        if trial.advantage.is_none() {
            only_branch(trial)?;
        }
        out.leave_out_versions(first);
        out.leave_out_rewards_by_name(first);
        for row in &trial.rows {
            let line = line(&Sequence::of(row)?, trial, score);
            out.lines.write(&row.trial_id, &line)?;
        }
        Ok(())
    }
}

fn line<'a>(branch: &Sequence<'a>, trial: &ComparedTrial, score: f64) -> RollLine<'a> {
    let row = branch.row;
    RollLine {
        input_ids: &row.token_ids,
        response_mask: &row.loss_mask,
        infer_logprobs: row.logprobs.get(1..).unwrap_or_default(),
        prompt_len: branch.prompt.len(),
        score,
        non_tensor: NonTensor {
            env_ids: row.sample_index,
            group_ids: group_number(trial.group, trial.ordinal),
            traj_group_id: group_name(row),
            traj_id: trajectory_name(row, trial),
            tags: "rolltap",
            step_scores: trial.reward,
            episode_scores: trial.reward,
        },
    }
}

fn trajectory_name(row: &RolloutRow, trial: &ComparedTrial) -> String {
    if trial.rows.len() > 1 {
        format!("{}_b{}", row.trial_id, row.branch_index)
    } else {
        row.trial_id.clone()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::export::exporter::Trial;
    use crate::export::testing::any_trial::{any_group, compared_rows};
    use crate::export::testing::fixture::{forked, judged_failed_and_trained, straight};
    use crate::export::testing::read_back::{bits, float_bits, ints, objects, told, written};

    #[test]
    fn a_branch_is_a_row_with_the_advantage_as_its_score() {
        let (lines, omissions) = written(RollExporter::new, [straight(), forked()]).unwrap();
        let expected = [
            r#"{"input_ids":[1,2,3,4,5,6],"response_mask":[0,0,1,0,1,1],"infer_logprobs":[0.0,-3.0,0.0,-5.0,-6.0],"prompt_len":2,"score":0.5,"non_tensor":{"env_ids":0,"group_ids":0,"traj_group_id":"group","traj_id":"straight","tags":"rolltap","step_scores":1.0,"episode_scores":1.0}}"#,
            r#"{"input_ids":[1,2,3,4,5],"response_mask":[0,0,1,0,1],"infer_logprobs":[0.0,-3.0,0.0,-5.0],"prompt_len":2,"score":-0.5,"non_tensor":{"env_ids":1,"group_ids":0,"traj_group_id":"group","traj_id":"forked_b0","tags":"rolltap","step_scores":0.0,"episode_scores":0.0}}"#,
            r#"{"input_ids":[1,2,3,7,8,9],"response_mask":[0,0,0,0,1,1],"infer_logprobs":[0.0,-3.0,0.0,-8.0,-9.0],"prompt_len":2,"score":-0.5,"non_tensor":{"env_ids":1,"group_ids":0,"traj_group_id":"group","traj_id":"forked_b1","tags":"rolltap","step_scores":0.0,"episode_scores":0.0}}"#,
        ];
        assert_eq!(lines, expected);
        assert_eq!(omissions, []);
    }

    #[test]
    fn without_advantages_a_fork_would_count_twice() {
        let without = |trial: Trial| Trial { advantage: None, ..trial };
        let refusal =
            written(RollExporter::new, [without(straight()), without(forked())]).unwrap_err().to_string();
        assert!(refusal.starts_with("trial forked, branch 0: 2 of its branches are trained"), "{refusal}");
        let line = objects(RollExporter::new, [Trial { group: None, ..without(straight()) }]).remove(0);
        assert_eq!(line["score"], 1.0);
    }

    #[test]
    fn advantages_and_rewards_do_not_mix() {
        let mixed = [Trial { advantage: None, ..straight() }, forked()];
        let refusal = written(RollExporter::new, mixed).unwrap_err().to_string();
        assert!(
            refusal.contains("some trials of the export have an advantage and some have none"),
            "{refusal}"
        );
    }

    #[test]
    fn a_failed_trial_is_left_out_and_a_judged_one_counts() {
        let (lines, omissions) = written(RollExporter::new, judged_failed_and_trained()).unwrap();
        assert_eq!(lines.len(), 2);
        let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!((&line["response_mask"], &line["score"]), (&json!([0, 0, 0, 0, 0, 0]), &json!(1.0)));
        assert!(
            told(&omissions).contains(&"1 trials: they have no reward, so that they have no line".to_owned())
        );
    }

    fn is_trained(trial: &Trial) -> bool {
        trial.reward.is_some() && trial.rows.iter().any(|row| row.loss_mask.contains(&1))
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(group in any_group()) {
            let group: Vec<_> = group.into_iter().filter(is_trained).map(|trial| Trial { group: None, ..trial }).collect();
            let lines = objects(RollExporter::new, group.clone());
            let rows: Vec<_> =
                group.iter().flat_map(|trial| compared_rows(trial).into_iter().map(move |row| (trial, row))).collect();
            prop_assert_eq!(lines.len(), rows.len());
            for (line, (trial, row)) in lines.iter().zip(rows) {
                prop_assert_eq!(&ints(&line["input_ids"]), &row.token_ids);
                prop_assert_eq!(&line["response_mask"], &json!(row.loss_mask));
                prop_assert_eq!(float_bits(&line["infer_logprobs"]), bits(&row.logprobs[1..]));
                prop_assert_eq!(line["prompt_len"].as_i64(), Some(row.prompt_len.into()));
                prop_assert_eq!(line["score"].as_f64(), trial.advantage);
                prop_assert_eq!(line["non_tensor"]["episode_scores"].as_f64(), trial.reward);
            }
        }
    }
}

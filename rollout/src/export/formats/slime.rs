//! slime (commit 624b824) and miles (commit 31f1ca9): one line per branch, the dictionary of a `Sample`, which
//! `Sample.from_dict` of both reads. Neither trainer is in a package index.
//!
//! slime compares each `n_samples_per_prompt` consecutive samples, so every group has the same number of trials. miles
//! compares the trials with the same `group_index`, of any number.
//!
//! `tokens` has the branch up to its last trained token. `response_length`, `loss_mask` and `rollout_log_probs` begin
//! at the first sampled token. `weight_versions` has the names of the policy versions of the trained tokens, oldest
//! first. `group_index` numbers groups, `rollout_id` trials and `index` lines, each within the file, and each file
//! starts again. `remove_sample` is true if the trial has no reward, because `reward` is a substitute then. `prompt`
//! and `response`, which are text, are empty. `metadata` identifies the line. It also has the verifier's rewards by
//! name, and the advantage if the export has advantages. `--load-debug-rollout-data` reads a list of these dictionaries
//! under `samples`, after `torch.save` has written it.
//!
//! Branches of a trial share its `rollout_id`, so the loss counts the trial once. miles also compares rewards by it.
//! slime does not: if any trial of the batch has forked, slime compares the whole batch as one group. A function for
//! `--custom-reward-post-process-path` that groups by `group_index` and `rollout_id` avoids this.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::export::exporter::ExportError;
use crate::export::shared::compared::{ComparedExporter, ComparedShape, ComparedTrial, TrialLines};
use crate::export::shared::naming::group_number;
use crate::export::shared::policy_number::names;
use crate::export::shared::sequence::Sequence;

/// Writes samples.
pub type SlimeExporter<W> = ComparedExporter<W, Slime>;

/// The shape of `Sample`.
#[derive(Debug, Default)]
pub struct Slime {
    lines: usize,
}

#[derive(Serialize)]
struct SlimeLine<'a> {
    group_index: i64,
    index: usize,
    rollout_id: usize,
    prompt: &'static str,
    tokens: &'a [i32],
    response: &'static str,
    response_length: usize,
    reward: f64,
    loss_mask: &'a [u8],
    weight_versions: Vec<String>,
    rollout_log_probs: &'a [f32],
    remove_sample: bool,
    status: &'a str,
    metadata: Metadata<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    trial_id: &'a str,
    task_id: &'a str,
    group_id: Option<&'a str>,
    sample_index: i32,
    branch_index: i32,
    rewards: &'a BTreeMap<String, f64>,
    advantage: Option<f64>,
}

impl ComparedShape for Slime {
    fn write<W: Write>(
        &mut self,
        trial: &ComparedTrial,
        out: &mut TrialLines<'_, W>,
    ) -> Result<(), ExportError> {
        for row in &trial.rows {
            let line = self.line(&Sequence::of(row)?, trial);
            // The names of several versions do not show which token belongs to which.
            let mixed = usize::from(line.weight_versions.len() > 1);
            out.tally.add("branches: which of their tokens are of which policy version", mixed);
            out.lines.write(&row.trial_id, &line)?;
        }
        Ok(())
    }
}

impl Slime {
    fn line<'a>(&mut self, branch: &Sequence<'a>, trial: &ComparedTrial) -> SlimeLine<'a> {
        let row = branch.row;
        let index = self.lines;
        self.lines += 1;
        SlimeLine {
            group_index: group_number(trial.group, trial.ordinal),
            index,
            rollout_id: trial.ordinal,
            prompt: "",
            tokens: &row.token_ids,
            response: "",
            response_length: branch.response.len(),
            reward: trial.reward,
            loss_mask: branch.mask,
            weight_versions: names(row),
            rollout_log_probs: branch.logprobs,
            // The reward is a substitute, which the trainer must not learn from.
            remove_sample: trial.is_stand_in,
            status: &row.status,
            metadata: Metadata {
                trial_id: &row.trial_id,
                task_id: &row.task_id,
                group_id: row.group_id.as_deref(),
                sample_index: row.sample_index,
                branch_index: row.branch_index,
                rewards: &row.rewards,
                advantage: trial.advantage,
            },
        }
    }
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
    fn a_branch_is_a_sample_and_a_trial_a_rollout() {
        let (lines, omissions) = written(SlimeExporter::new, [straight(), forked()]).unwrap();
        let expected = [
            r#"{"group_index":0,"index":0,"rollout_id":0,"prompt":"","tokens":[1,2,3,4,5,6],"response":"","response_length":4,"reward":1.0,"loss_mask":[1,0,1,1],"weight_versions":["0"],"rollout_log_probs":[-3.0,0.0,-5.0,-6.0],"remove_sample":false,"status":"completed","metadata":{"trial_id":"straight","task_id":"org/task","group_id":"group","sample_index":0,"branch_index":0,"rewards":{},"advantage":0.5}}"#,
            r#"{"group_index":0,"index":1,"rollout_id":1,"prompt":"","tokens":[1,2,3,4,5],"response":"","response_length":3,"reward":0.0,"loss_mask":[1,0,1],"weight_versions":["0"],"rollout_log_probs":[-3.0,0.0,-5.0],"remove_sample":false,"status":"completed","metadata":{"trial_id":"forked","task_id":"org/task","group_id":"group","sample_index":1,"branch_index":0,"rewards":{},"advantage":-0.5}}"#,
            r#"{"group_index":0,"index":2,"rollout_id":1,"prompt":"","tokens":[1,2,3,7,8,9],"response":"","response_length":4,"reward":0.0,"loss_mask":[0,0,1,1],"weight_versions":["0"],"rollout_log_probs":[-3.0,0.0,-8.0,-9.0],"remove_sample":false,"status":"completed","metadata":{"trial_id":"forked","task_id":"org/task","group_id":"group","sample_index":1,"branch_index":1,"rewards":{},"advantage":-0.5}}"#,
        ];
        assert_eq!(lines, expected);
        assert_eq!(omissions, []);
    }

    #[test]
    fn trials_of_no_group_are_not_compared() {
        let alone = || Trial { group: None, ..straight() };
        let numbers: Vec<_> = objects(SlimeExporter::new, [alone(), alone()])
            .iter()
            .map(|line| line["group_index"].as_i64().unwrap())
            .collect();
        assert_eq!(numbers, [-1, -2]);
    }

    #[test]
    fn versions_are_named_as_the_trainer_names_them_oldest_first() {
        let mut trial = Trial { group: None, ..straight() };
        trial.rows[0].token_version = vec![-1, -1, 9, -1, 10, 10];
        trial.rows[0].version_labels.insert("10".into(), "step-10".into());
        let line = objects(SlimeExporter::new, [trial.clone()]).remove(0);
        assert_eq!(line["weight_versions"], json!(["9", "step-10"]));
        let (_, omissions) = written(SlimeExporter::new, [trial]).unwrap();
        assert_eq!(told(&omissions), ["1 branches: which of their tokens are of which policy version"]);
    }

    #[test]
    fn a_trial_without_a_reward_is_removed_and_its_group_keeps_its_place() {
        let mut masked = Trial { reward: None, stand_in: Some(1.0), advantage: None, ..forked() };
        masked.rows.iter_mut().for_each(|row| row.loss_mask.fill(0));
        let lines = objects(SlimeExporter::new, [straight(), masked]);
        assert_eq!((&lines[1]["remove_sample"], &lines[1]["reward"]), (&json!(true), &json!(1.0)));
        assert_eq!(lines[1]["loss_mask"], json!([0, 0, 0]));
        assert_eq!(lines.len(), 2);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(group in any_group()) {
            let lines = objects(SlimeExporter::new, group.clone());
            let rows: Vec<_> =
                group.iter().flat_map(|trial| compared_rows(trial).into_iter().map(move |row| (trial, row))).collect();
            prop_assert_eq!(lines.len(), rows.len());
            let mut rollouts = BTreeMap::new();
            for (line, (trial, row)) in lines.iter().zip(rows) {
                let start = row.token_ids.len() - line["response_length"].as_u64().unwrap() as usize;
                prop_assert_eq!(&ints(&line["tokens"]), &row.token_ids);
                prop_assert_eq!(row.loss_mask[..start].iter().max(), Some(&0));
                prop_assert_eq!(&line["loss_mask"], &json!(row.loss_mask[start..]));
                prop_assert_eq!(float_bits(&line["rollout_log_probs"]), bits(&row.logprobs[start..]));
                prop_assert_eq!(line["reward"].as_f64(), trial.reward.or(trial.stand_in));
                prop_assert_eq!(line["remove_sample"].as_bool(), Some(trial.reward.is_none()));
                let rollout = rollouts.entry(line["rollout_id"].as_u64()).or_insert(row.trial_id.clone());
                prop_assert_eq!(&*rollout, &row.trial_id);
            }
            prop_assert_eq!(rollouts.len(), group.len());
        }
    }
}

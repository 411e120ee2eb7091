//! TRL (package `trl` 1.16.0): one line per branch, a `RolloutSample` of its asynchronous GRPO trainer.
//!
//! `input_ids`, `completion_mask` and `old_log_probs` have the branch up to its last trained token, unshifted.
//! `advantage`, `model_version`, `group_id` and `metrics` are as in TRL. `prompt` and `completion`, which TRL only
//! displays, are omitted. For `GRPOTrainer(rollout_func=…)`, split the three lists at `prompt_len`: the first part is
//! its `prompt_ids`, the second its `completion_ids`, `env_mask` and `logprobs`. `trial_id`, `task_id`, `sample_index`
//! and `branch_index` identify the line.
//!
//! The trainer uses the advantage unchanged and a mean over tokens. All branches of a trial have the trial's advantage,
//! so a fork has no higher weight. The trainer drops a sample by `model_version`, which is the oldest version that
//! sampled a trained token. A branch without trained tokens has no line. A batch with only such lines breaks the
//! trainer's step, and TRL's own worker does not write these either.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};
use crate::export::shared::lines::{Lines, Tally};
use crate::export::shared::naming::group_number;
use crate::export::shared::policy_number::PolicyNumbers;
use crate::export::shared::refusal::{advantage, refuse_unfit};
use crate::export::shared::row_queries::is_trained;
use crate::export::shared::sequence::{Sequence, cut_tail};
use crate::row::RolloutRow;

/// Writes samples for the asynchronous trainer.
#[derive(Debug)]
pub struct TrlExporter<W: Write> {
    lines: Lines<W>,
    tally: Tally,
    trials: usize,
}

#[derive(Serialize)]
struct TrlLine<'a> {
    input_ids: &'a [i32],
    completion_mask: &'a [u8],
    old_log_probs: &'a [f32],
    advantage: f64,
    model_version: i64,
    group_id: i64,
    metrics: &'a BTreeMap<String, f64>,
    prompt_len: usize,
    trial_id: &'a str,
    task_id: &'a str,
    sample_index: i32,
    branch_index: i32,
}

impl<W: Write> TrlExporter<W> {
    /// Returns an exporter. Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { lines: Lines::new(out), tally: Tally::default(), trials: 0 }
    }

    fn write_branch(
        &mut self,
        row: &RolloutRow,
        trial: &Trial,
        group_id: i64,
        (advantage, versions): (f64, PolicyNumbers),
    ) -> Result<(), ExportError> {
        let sequence = Sequence::of(row)?;
        let (oldest, newest) = versions.span(row);
        self.tally.add(
            "branches: that they are of several policy versions (the oldest is given)",
            usize::from(oldest != newest),
        );
        let line = TrlLine {
            input_ids: &row.token_ids,
            completion_mask: &row.loss_mask,
            old_log_probs: &row.logprobs,
            advantage,
            model_version: oldest,
            group_id,
            metrics: &metrics(trial, row),
            prompt_len: sequence.prompt.len(),
            trial_id: &row.trial_id,
            task_id: &row.task_id,
            sample_index: row.sample_index,
            branch_index: row.branch_index,
        };
        self.lines.write(&row.trial_id, &line)
    }
}

/// Returns the rewards under the names that TRL's own worker uses.
fn metrics(trial: &Trial, row: &RolloutRow) -> BTreeMap<String, f64> {
    let named = row.rewards.iter().map(|(name, &value)| (format!("rewards/{name}"), value));
    named.chain(trial.reward.map(|reward| ("reward".to_owned(), reward))).collect()
}

impl<W: Write> Exporter for TrlExporter<W> {
    fn write(&mut self, mut trial: Trial) -> Result<(), ExportError> {
        refuse_unfit(&trial)?;
        let tails = trial.rows.iter_mut().map(cut_tail).filter(|&had_tail| had_tail).count();
        self.tally.add("branches: tokens after the last one that is trained", tails);
        let group_id = group_number(trial.group, self.trials);
        // Counted for trials without a sample too, so that the numbers do not depend on the masks.
        self.trials += 1;
        let (trained, masked): (Vec<_>, Vec<_>) = trial.rows.iter().partition(|row| is_trained(row));
        // The trainer takes the advantage from the sample, so a trained trial must have one.
        let Some(advantage) = advantage(&trial)?.filter(|_| !trained.is_empty()) else {
            self.tally.add("trials: nothing of them is trained, so that they have no sample", 1);
            return Ok(());
        };
        self.tally.add("branches: nothing on them is trained", masked.len());
        let weight = (advantage, PolicyNumbers::of(&trial.rows));
        trained.into_iter().try_for_each(|row| self.write_branch(row, &trial, group_id, weight))
    }

    fn finish(self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        self.lines.finish()?;
        Ok(self.tally.omissions())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::export::testing::any_trial::{any_group, trained_rows};
    use crate::export::testing::fixture::{forked, straight};
    use crate::export::testing::read_back::{bits, float_bits, ints, objects, told, written};

    #[test]
    fn a_branch_is_a_sample_and_shared_tokens_train_once() {
        let (lines, omissions) = written(TrlExporter::new, [straight(), forked()]).unwrap();
        let expected = [
            r#"{"input_ids":[1,2,3,4,5,6],"completion_mask":[0,0,1,0,1,1],"old_log_probs":[0.0,0.0,-3.0,0.0,-5.0,-6.0],"advantage":0.5,"model_version":0,"group_id":0,"metrics":{"reward":1.0},"prompt_len":2,"trial_id":"straight","task_id":"org/task","sample_index":0,"branch_index":0}"#,
            r#"{"input_ids":[1,2,3,4,5],"completion_mask":[0,0,1,0,1],"old_log_probs":[0.0,0.0,-3.0,0.0,-5.0],"advantage":-0.5,"model_version":0,"group_id":0,"metrics":{"reward":0.0},"prompt_len":2,"trial_id":"forked","task_id":"org/task","sample_index":1,"branch_index":0}"#,
            r#"{"input_ids":[1,2,3,7,8,9],"completion_mask":[0,0,0,0,1,1],"old_log_probs":[0.0,0.0,-3.0,0.0,-8.0,-9.0],"advantage":-0.5,"model_version":0,"group_id":0,"metrics":{"reward":0.0},"prompt_len":2,"trial_id":"forked","task_id":"org/task","sample_index":1,"branch_index":1}"#,
        ];
        assert_eq!(lines, expected);
        assert_eq!(omissions, []);
    }

    #[test]
    fn a_trained_trial_without_an_advantage_is_refused() {
        let refusal = written(TrlExporter::new, [Trial { advantage: None, ..straight() }]).unwrap_err();
        let told = refusal.to_string();
        assert!(told.starts_with("trial straight, branch 0: it has no advantage"), "{told}");
    }

    #[test]
    fn what_trains_nothing_has_no_sample_and_is_told() {
        let mut masked = Trial { reward: None, advantage: None, ..straight() };
        masked.rows[0].loss_mask.fill(0);
        let mut half = forked();
        half.rows[0].loss_mask.fill(0);
        let (lines, omissions) = written(TrlExporter::new, [masked, half]).unwrap();
        assert_eq!(lines.len(), 1);
        let expected = [
            "1 trials: nothing of them is trained, so that they have no sample",
            "1 branches: nothing on them is trained",
        ];
        assert_eq!(told(&omissions), expected);
    }

    #[test]
    fn the_version_is_the_trainers_own_step_and_the_oldest() {
        let mut trial = straight();
        trial.rows[0].token_version = vec![-1, -1, 3, -1, 4, 4];
        trial.rows[0].version_labels = [("3", "120"), ("4", "121")].map(|(a, b)| (a.into(), b.into())).into();
        trial.rows[0].rewards.insert("tests".into(), 0.75);
        let sample = objects(TrlExporter::new, [trial.clone()]).remove(0);
        assert_eq!(sample["model_version"], 120);
        assert_eq!(sample["metrics"], json!({"reward": 1.0, "rewards/tests": 0.75}));
        let (_, omissions) = written(TrlExporter::new, [trial]).unwrap();
        assert_eq!(
            told(&omissions),
            ["1 branches: that they are of several policy versions (the oldest is given)"]
        );
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(group in any_group()) {
            let samples = objects(TrlExporter::new, group.clone());
            let rows: Vec<_> =
                group.iter().flat_map(|trial| trained_rows(trial).into_iter().map(move |row| (trial, row))).collect();
            prop_assert_eq!(samples.len(), rows.len());
            for (sample, (trial, row)) in samples.iter().zip(rows) {
                prop_assert_eq!(&ints(&sample["input_ids"]), &row.token_ids);
                prop_assert_eq!(&sample["completion_mask"], &json!(row.loss_mask));
                prop_assert_eq!(float_bits(&sample["old_log_probs"]), bits(&row.logprobs));
                prop_assert_eq!(sample["advantage"].as_f64(), trial.advantage);
                prop_assert_eq!(sample["metrics"]["reward"].as_f64(), trial.reward);
                prop_assert_eq!(sample["prompt_len"].as_i64(), Some(row.prompt_len.into()));
                let trained = row.token_version.iter().zip(&row.loss_mask).filter(|&(_, &mask)| mask == 1);
                let oldest = trained.map(|(&version, _)| i64::from(version)).min();
                prop_assert_eq!(sample["model_version"].as_i64(), oldest);
            }
        }
    }
}

//! torchforge (commit 6e77f0b, not in a package index): one line per run of trained tokens of a call, from which the reader
//! makes an `Episode` with its `Completion`.
//!
//! `prompt_ids` has all earlier tokens of the branch, `token_ids` and `logprobs` the run. `stop_reason` is that of the
//! call, if the run ends with it. `generator_version` is the oldest policy version of the run, by which the replay buffer
//! drops episodes. `reward` and `advantage` are those of the trial. `episode_id` is unique in the file. `metadata`
//! identifies the line.
//!
//! torchforge's own rule compares the rewards of the episodes of a group, and a trial would count once per call. For this
//! reason a line has the advantage, which the trainer uses unchanged. The loss is a mean over the tokens of an episode, and
//! then over episodes, so a trial weighs as much as it has lines. torchforge trains every token of a completion except
//! those with the id of its padding. It does not use `logprobs`: its ratio is 1.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};
use crate::export::shared::call_run::{CallRun, call_runs};
use crate::export::shared::lines::{Lines, Tally};
use crate::export::shared::policy_number::PolicyNumbers;
use crate::export::shared::refusal::{advantage, refuse_unfit};
use crate::export::shared::row_queries::is_trained;
use crate::export::shared::sequence::Sequence;

/// Writes episodes.
#[derive(Debug)]
pub struct TorchforgeExporter<W: Write> {
    lines: Lines<W>,
    tally: Tally,
}

#[derive(Serialize)]
struct Episode<'a> {
    episode_id: String,
    prompt_ids: &'a [i32],
    token_ids: &'a [i32],
    logprobs: &'a [f32],
    stop_reason: Option<&'a str>,
    generator_version: i64,
    reward: Option<f64>,
    advantage: f64,
    metadata: Metadata<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    trial_id: &'a str,
    task_id: &'a str,
    group_id: Option<&'a str>,
    sample_index: i32,
    branch_index: i32,
    call_id: &'a str,
    rewards: &'a BTreeMap<String, f64>,
}

impl<W: Write> TorchforgeExporter<W> {
    /// Returns an exporter. Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { lines: Lines::new(out), tally: Tally::default() }
    }
}

impl<W: Write> Exporter for TorchforgeExporter<W> {
    fn write(&mut self, trial: Trial) -> Result<(), ExportError> {
        refuse_unfit(&trial)?;
        let trained = trial.rows.iter().any(is_trained);
        let Some(advantage) = advantage(&trial)?.filter(|_| trained) else {
            self.tally.add("trials: nothing of them is trained, so that they have no episode", 1);
            return Ok(());
        };
        let numbers = PolicyNumbers::of(&trial.rows);
        let mut episodes = 0_usize;
        for row in trial.rows.iter().filter(|row| is_trained(row)) {
            // A run needs a prompt, which the branch has.
            Sequence::of(row)?;
            for run in call_runs(row) {
                let line = episode(&run, (episodes, run.oldest_version(numbers)), trial.reward, advantage);
                self.lines.write(&row.trial_id, &line)?;
                episodes += 1;
            }
        }
        self.tally.add("trials: that they weigh as much as they have episodes", usize::from(episodes > 1));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        self.lines.finish()?;
        Ok(self.tally.omissions())
    }
}

fn episode<'a>(
    run: &CallRun<'a>,
    (index, generator_version): (usize, i64),
    reward: Option<f64>,
    advantage: f64,
) -> Episode<'a> {
    let row = run.row;
    Episode {
        episode_id: format!("{}:{index}", row.trial_id),
        prompt_ids: run.prompt_ids(),
        token_ids: run.ids(),
        logprobs: run.logprobs(),
        stop_reason: run.finish_reason(),
        generator_version,
        reward,
        advantage,
        metadata: Metadata {
            trial_id: &row.trial_id,
            task_id: &row.task_id,
            group_id: row.group_id.as_deref(),
            sample_index: row.sample_index,
            branch_index: row.branch_index,
            call_id: run.call_id(),
            rewards: &row.rewards,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::export::testing::any_trial::any_group;
    use crate::export::testing::fixture::{forked, straight};
    use crate::export::testing::read_back::{bits, float_bits, ints, objects, told, written};

    #[test]
    fn a_call_is_an_episode_and_shared_tokens_train_once() {
        let (lines, omissions) = written(TorchforgeExporter::new, [straight(), forked()]).unwrap();
        let expected = r#"{"episode_id":"straight:1","prompt_ids":[1,2,3,4],"token_ids":[5,6],"logprobs":[-5.0,-6.0],"stop_reason":"stop","generator_version":0,"reward":1.0,"advantage":0.5,"metadata":{"trial_id":"straight","task_id":"org/task","group_id":"group","sample_index":0,"branch_index":0,"call_id":"c0001","rewards":{}}}"#;
        assert_eq!(lines[1], expected);
        assert_eq!(told(&omissions), ["2 trials: that they weigh as much as they have episodes"]);
        let ids = |line: &String| {
            let episode: serde_json::Value = serde_json::from_str(line).unwrap();
            ints(&episode["token_ids"])
        };
        assert_eq!(lines[2..].iter().map(ids).collect::<Vec<_>>(), [vec![3], vec![5], vec![8, 9]]);
    }

    #[test]
    fn a_trained_trial_without_an_advantage_is_refused() {
        let refusal =
            written(TorchforgeExporter::new, [Trial { advantage: None, ..straight() }]).unwrap_err();
        let told = refusal.to_string();
        assert!(told.starts_with("trial straight, branch 0: it has no advantage"), "{told}");
    }

    #[test]
    fn what_trains_nothing_has_no_episode_and_is_told() {
        let mut masked = Trial { reward: None, advantage: None, ..straight() };
        masked.rows[0].loss_mask.fill(0);
        let (lines, omissions) = written(TorchforgeExporter::new, [masked]).unwrap();
        assert!(lines.is_empty());
        assert_eq!(told(&omissions), ["1 trials: nothing of them is trained, so that they have no episode"]);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(group in any_group()) {
            let episodes = objects(TorchforgeExporter::new, group.clone());
            let runs: Vec<_> = group
                .iter()
                .flat_map(|trial| trial.rows.iter().flat_map(call_runs).map(move |run| (trial, run)))
                .collect();
            prop_assert_eq!(episodes.len(), runs.len());
            for (episode, (trial, run)) in episodes.iter().zip(runs) {
                prop_assert_eq!(ints(&episode["prompt_ids"]), run.prompt_ids());
                prop_assert_eq!(ints(&episode["token_ids"]), run.ids());
                prop_assert_eq!(float_bits(&episode["logprobs"]), bits(run.logprobs()));
                prop_assert_eq!(episode["advantage"].as_f64(), trial.advantage);
                prop_assert_eq!(episode["reward"].as_f64(), trial.reward);
                let oldest = run.row.token_version[run.tokens].iter().min();
                prop_assert_eq!(episode["generator_version"].as_i64(), oldest.map(|&version| version.into()));
            }
        }
    }
}

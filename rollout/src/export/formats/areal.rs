//! AReaL (package `areal` 1.0.4): one line per trial, the tensors that a workflow's `arun_episode` returns.
//!
//! A line is `{trial_id, group_id, sample_index, input_ids, loss_mask, logprobs, versions, rewards}`. The last five
//! have an entry per branch. All of these except `rewards` are lists of its tokens, unshifted, which the reader pads to
//! the longest. `attention_mask` is 1 for every token. `versions` are −1 for tokens that were not sampled. A branch
//! ends with its last trained token: AReaL puts the reward on the very last token, and ignores it if that token is
//! masked.
//!
//! In an export with advantages, which is the default, `rewards` has the advantages, the same for each branch of a
//! trial. Such a file must be trained without `reward_norm` and `adv_norm`. In an export without advantages, `rewards`
//! has the trials' own. AReaL compares these by position: each `group_size` consecutive rows. A trial with several
//! branches is rejected then, and every group has the same number of rows.

use std::io::Write;

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use crate::export::exporter::ExportError;
use crate::export::shared::compared::{ComparedExporter, ComparedShape, ComparedTrial, TrialLines};
use crate::export::shared::one_number::OneNumber;
use crate::export::shared::policy_number::PolicyNumbers;
use crate::export::shared::positions::Positions;
use crate::export::shared::sequence::Sequence;
use crate::row::RolloutRow;

/// Writes the tensors of episodes.
pub type ArealExporter<W> = ComparedExporter<W, Areal>;

/// The shape of an episode's tensors.
#[derive(Debug, Default)]
pub struct Areal {
    positions: Positions,
    reward: OneNumber,
}

#[derive(Serialize)]
struct ArealLine<'a> {
    trial_id: &'a str,
    group_id: Option<&'a str>,
    sample_index: i32,
    input_ids: Vec<&'a [i32]>,
    loss_mask: Vec<&'a [u8]>,
    logprobs: Vec<&'a [f32]>,
    versions: Vec<Versions<'a>>,
    rewards: Vec<f64>,
}

/// The policy numbers of a row's tokens.
struct Versions<'a> {
    row: &'a RolloutRow,
    numbers: PolicyNumbers,
}

impl Serialize for Versions<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.row.token_version.len()))?;
        // Runs, because the lookup of a label per token would be slow.
        for run in self.row.token_version.chunk_by(|a, b| a == b) {
            let number = run.first().map_or(-1, |&version| self.numbers.of_token(self.row, version));
            run.iter().try_for_each(|_| list.serialize_element(&number))?;
        }
        list.end()
    }
}

impl ComparedShape for Areal {
    fn write<W: Write>(
        &mut self,
        trial: &ComparedTrial,
        out: &mut TrialLines<'_, W>,
    ) -> Result<(), ExportError> {
        let Some(first) = trial.rows.first() else { return Ok(()) };
        let has_advantage = trial.advantage.is_some();
        let reward = self.reward.of(trial)?;
        // Advantages are already relative to the group, so the position in the file has no effect.
        if !has_advantage {
            self.positions.take(trial)?;
        }
        let branches = trial.rows.iter().map(Sequence::of).collect::<Result<Vec<_>, _>>()?;
        let numbers = PolicyNumbers::of(&trial.rows);
        out.leave_out_rewards_by_name(first);
        out.tally.add(
            "trials: their reward, in the place of which the advantage stands",
            usize::from(has_advantage),
        );
        let line = ArealLine {
            trial_id: &first.trial_id,
            group_id: first.group_id.as_deref(),
            sample_index: first.sample_index,
            input_ids: branches.iter().map(|branch| branch.row.token_ids.as_slice()).collect(),
            loss_mask: branches.iter().map(|branch| branch.row.loss_mask.as_slice()).collect(),
            logprobs: branches.iter().map(|branch| branch.row.logprobs.as_slice()).collect(),
            versions: branches.iter().map(|branch| Versions { row: branch.row, numbers }).collect(),
            rewards: vec![reward; branches.len()],
        };
        out.lines.write(&first.trial_id, &line)
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
    fn with_an_advantage_a_trial_is_the_rows_of_its_branches() {
        let (lines, omissions) = written(ArealExporter::new, [straight(), forked()]).unwrap();
        let expected = [
            r#"{"trial_id":"straight","group_id":"group","sample_index":0,"input_ids":[[1,2,3,4,5,6]],"loss_mask":[[0,0,1,0,1,1]],"logprobs":[[0.0,0.0,-3.0,0.0,-5.0,-6.0]],"versions":[[-1,-1,0,-1,0,0]],"rewards":[0.5]}"#,
            r#"{"trial_id":"forked","group_id":"group","sample_index":1,"input_ids":[[1,2,3,4,5],[1,2,3,7,8,9]],"loss_mask":[[0,0,1,0,1],[0,0,0,0,1,1]],"logprobs":[[0.0,0.0,-3.0,0.0,-5.0],[0.0,0.0,-3.0,0.0,-8.0,-9.0]],"versions":[[-1,-1,0,-1,0],[-1,-1,0,-1,0,0]],"rewards":[-0.5,-0.5]}"#,
        ];
        assert_eq!(lines, expected);
        assert_eq!(told(&omissions), ["2 trials: their reward, in the place of which the advantage stands"]);
    }

    #[test]
    fn without_one_forks_are_refused() {
        let plain = |trial| Trial { advantage: None, ..trial };
        let refusal = written(ArealExporter::new, [straight(), forked()].map(plain)).unwrap_err().to_string();
        assert!(refusal.starts_with("trial forked, branch 0: 2 of its branches are trained"), "{refusal}");
        let lines = objects(ArealExporter::new, [Trial { group: None, ..plain(straight()) }]);
        assert_eq!(lines[0]["rewards"], json!([1.0]));
    }

    #[test]
    fn the_last_token_is_trained_for_there_the_trainer_puts_the_reward() {
        let mut trial = Trial { group: None, ..straight() };
        trial.rows[0].loss_mask[4..].fill(0);
        let line = objects(ArealExporter::new, [trial.clone()]).remove(0);
        assert_eq!((&line["input_ids"], &line["loss_mask"]), (&json!([[1, 2, 3]]), &json!([[0, 0, 1]])));
        let (_, omissions) = written(ArealExporter::new, [trial]).unwrap();
        assert!(
            told(&omissions).contains(&"1 branches: tokens after the last one that is trained".to_owned())
        );
    }

    #[test]
    fn rewards_and_advantages_do_not_mix() {
        let alone = |advantage| Trial { group: None, advantage, ..straight() };
        let refusal = written(ArealExporter::new, [alone(Some(0.5)), alone(None)]).unwrap_err().to_string();
        assert!(
            refusal.contains("some trials of the export have an advantage and some have none"),
            "{refusal}"
        );
    }

    #[test]
    fn versions_are_the_trainers_own_where_it_named_them() {
        let mut trial = Trial { group: None, ..straight() };
        trial.rows[0].token_version = vec![-1, -1, 3, -1, 4, 4];
        trial.rows[0].version_labels = [("3", "120"), ("4", "121")].map(|(a, b)| (a.into(), b.into())).into();
        assert_eq!(objects(ArealExporter::new, [trial])[0]["versions"], json!([[-1, -1, 120, -1, 121, 121]]));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(mut group in any_group()) {
            group.iter_mut().for_each(|trial| trial.advantage = trial.advantage.or(Some(0.0)));
            let lines = objects(ArealExporter::new, group.clone());
            prop_assert_eq!(lines.len(), group.len());
            for (line, trial) in lines.iter().zip(&group) {
                let rows = compared_rows(trial);
                prop_assert_eq!(line["input_ids"].as_array().unwrap().len(), rows.len());
                for (branch, row) in rows.into_iter().enumerate() {
                    prop_assert_eq!(&ints(&line["input_ids"][branch]), &row.token_ids);
                    prop_assert_eq!(&ints(&line["versions"][branch]), &row.token_version);
                    prop_assert_eq!(&line["loss_mask"][branch], &json!(row.loss_mask));
                    prop_assert_eq!(float_bits(&line["logprobs"][branch]), bits(&row.logprobs));
                    prop_assert_eq!(line["rewards"][branch].as_f64(), trial.advantage);
                }
            }
        }
    }
}

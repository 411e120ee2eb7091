//! verl (package `verl` 0.9.1): one line per trial, the list of `AgentLoopOutput`s that an agent loop's `run` returns.
//!
//! A line is `{trial_id, uid, session_id, outputs}`. verl stores an output as `{uid}_{session_id}_{index in outputs}`,
//! where `uid` is the group and `session_id` the sample. An output is a branch. It has `prompt_ids`, and from the first
//! sampled token on `response_ids`, `response_mask` and `response_logprobs`. It also has `reward_score`, `num_turns` (a
//! prompt and an answer for each call) and an empty `metrics`. `extra_fields` has `min_global_steps` and
//! `max_global_steps` (the oldest and the newest policy version of the trained tokens) and `reward_extra_info`, the
//! verifier's rewards by name. verl requires the same names on every sample of a batch, so each output has all names of
//! the export, with null for those that its trial lacks.
//!
//! GRPO takes a trial's score from its last output, at the first trained token there, and gives it to all outputs. So a
//! trial counts once with any number of forks, but is not trained if its last output is masked. For this reason the
//! list contains no masked output. Other estimators treat each output as a trial. Those per token lose the reward if
//! the last token of an output is masked, because verl puts the reward there. For this reason each output ends with its
//! last trained token.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::export::exporter::ExportError;
use crate::export::shared::compared::{ComparedExporter, ComparedShape, ComparedTrial, TrialLines};
use crate::export::shared::naming::{Samples, group_name};
use crate::export::shared::policy_number::PolicyNumbers;
use crate::export::shared::sequence::Sequence;

/// Writes the outputs of agent loops.
pub type VerlExporter<W> = ComparedExporter<W, Verl>;

/// The shape of a list of `AgentLoopOutput`s.
#[derive(Debug, Default)]
pub struct Verl {
    samples: Samples,
    /// The names of rewards that every output has.
    reward_names: Vec<String>,
}

impl Verl {
    /// Returns a shape whose outputs have all of these names in `reward_extra_info`.
    pub fn with_reward_names(reward_names: Vec<String>) -> Self {
        Self { samples: Samples::default(), reward_names }
    }
}

#[derive(Serialize)]
struct VerlLine<'a> {
    trial_id: &'a str,
    uid: &'a str,
    session_id: i32,
    outputs: Vec<Output<'a>>,
}

#[derive(Serialize)]
struct Output<'a> {
    prompt_ids: &'a [i32],
    response_ids: &'a [i32],
    response_mask: &'a [u8],
    response_logprobs: &'a [f32],
    reward_score: f64,
    num_turns: usize,
    metrics: Empty,
    extra_fields: ExtraFields<'a>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct ExtraFields<'a> {
    min_global_steps: i64,
    max_global_steps: i64,
    reward_extra_info: BTreeMap<&'a str, Option<f64>>,
}

impl ComparedShape for Verl {
    fn write<W: Write>(
        &mut self,
        trial: &ComparedTrial,
        out: &mut TrialLines<'_, W>,
    ) -> Result<(), ExportError> {
        let branches = trial.rows.iter().map(Sequence::of).collect::<Result<Vec<_>, _>>()?;
        let Some(row) = branches.first().map(|branch| branch.row) else { return Ok(()) };
        self.samples.add(row)?;
        out.leave_out_advantage(trial);
        // One numbering for all branches of the trial, because labels and counts are not comparable.
        let versions = PolicyNumbers::of(&trial.rows);
        let info = self.reward_extra_info(&row.rewards);
        let outputs: Vec<_> =
            branches.iter().map(|branch| output(branch, trial.reward, versions, info.clone())).collect();
        let mixed = outputs.iter().filter(|output| output.extra_fields.is_mixed()).count();
        out.tally.add("branches: which of their tokens are of which policy version", mixed);
        let line =
            VerlLine { trial_id: &row.trial_id, uid: group_name(row), session_id: row.sample_index, outputs };
        out.lines.write(&row.trial_id, &line)
    }
}

impl Verl {
    fn reward_extra_info<'a>(&'a self, rewards: &'a BTreeMap<String, f64>) -> BTreeMap<&'a str, Option<f64>> {
        let missing = self.reward_names.iter().map(|name| (name.as_str(), None));
        missing.chain(rewards.iter().map(|(name, &reward)| (name.as_str(), Some(reward)))).collect()
    }
}

impl ExtraFields<'_> {
    fn is_mixed(&self) -> bool {
        self.min_global_steps != self.max_global_steps
    }
}

fn output<'a>(
    branch: &Sequence<'a>,
    reward: f64,
    versions: PolicyNumbers,
    reward_extra_info: BTreeMap<&'a str, Option<f64>>,
) -> Output<'a> {
    let (min_global_steps, max_global_steps) = versions.span(branch.row);
    Output {
        prompt_ids: branch.prompt,
        response_ids: branch.response,
        response_mask: branch.mask,
        response_logprobs: branch.logprobs,
        reward_score: reward,
        // verl counts a prompt and an answer as two turns.
        num_turns: 2 * branch.row.calls.len(),
        metrics: Empty {},
        extra_fields: ExtraFields { min_global_steps, max_global_steps, reward_extra_info },
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
    fn a_trial_is_a_session_and_a_branch_an_output() {
        let (lines, omissions) = written(VerlExporter::new, [straight(), forked()]).unwrap();
        let expected = [
            r#"{"trial_id":"straight","uid":"group","session_id":0,"outputs":[{"prompt_ids":[1,2],"response_ids":[3,4,5,6],"response_mask":[1,0,1,1],"response_logprobs":[-3.0,0.0,-5.0,-6.0],"reward_score":1.0,"num_turns":4,"metrics":{},"extra_fields":{"min_global_steps":0,"max_global_steps":0,"reward_extra_info":{}}}]}"#,
            r#"{"trial_id":"forked","uid":"group","session_id":1,"outputs":[{"prompt_ids":[1,2],"response_ids":[3,4,5],"response_mask":[1,0,1],"response_logprobs":[-3.0,0.0,-5.0],"reward_score":0.0,"num_turns":4,"metrics":{},"extra_fields":{"min_global_steps":0,"max_global_steps":0,"reward_extra_info":{}}},{"prompt_ids":[1,2],"response_ids":[3,7,8,9],"response_mask":[0,0,1,1],"response_logprobs":[-3.0,0.0,-8.0,-9.0],"reward_score":0.0,"num_turns":4,"metrics":{},"extra_fields":{"min_global_steps":0,"max_global_steps":0,"reward_extra_info":{}}}]}"#,
        ];
        assert_eq!(lines, expected);
        assert_eq!(told(&omissions), ["2 trials: their advantage, which the trainer works out itself"]);
    }

    #[test]
    fn the_last_output_trains_something_or_the_trial_would_train_nothing() {
        let mut trial = Trial { group: None, ..forked() };
        trial.rows[1].loss_mask.fill(0);
        let line = objects(VerlExporter::new, [trial]).remove(0);
        let outputs = line["outputs"].as_array().unwrap();
        assert_eq!(outputs.len(), 1);
        assert_eq!(outputs[0]["response_mask"], json!([1, 0, 1]));
    }

    #[test]
    fn the_last_token_is_trained_for_there_the_trainer_puts_the_reward() {
        let mut trial = Trial { group: None, ..straight() };
        trial.rows[0].loss_mask[4..].fill(0);
        let output = objects(VerlExporter::new, [trial]).remove(0)["outputs"][0].clone();
        assert_eq!((&output["response_ids"], &output["response_mask"]), (&json!([3]), &json!([1])));
    }

    #[test]
    fn versions_and_rewards_stand_in_the_extra_fields() {
        let mut trial = Trial { group: None, ..straight() };
        trial.rows[0].token_version = vec![-1, -1, 3, -1, 4, 4];
        trial.rows[0].rewards.insert("tests".into(), 0.75);
        let line = objects(VerlExporter::new, [trial.clone()]).remove(0);
        let expected =
            json!({"min_global_steps": 3, "max_global_steps": 4, "reward_extra_info": {"tests": 0.75}});
        assert_eq!(line["outputs"][0]["extra_fields"], expected);
        let (_, omissions) = written(VerlExporter::new, [trial]).unwrap();
        assert!(
            told(&omissions)
                .contains(&"1 branches: which of their tokens are of which policy version".to_owned())
        );
    }

    /// verl takes the names of the first sample and fails at a later one that lacks a name.
    #[test]
    fn every_output_has_the_same_names_of_rewards() {
        let shape = Verl::with_reward_names(vec!["style".to_owned(), "tests".to_owned()]);
        let mut trial = Trial { group: None, ..straight() };
        trial.rows[0].rewards.insert("tests".into(), 0.75);
        let line = objects(|out| VerlExporter::with_shape(out, shape), [trial]).remove(0);
        let info = &line["outputs"][0]["extra_fields"]["reward_extra_info"];
        assert_eq!(info, &json!({"style": null, "tests": 0.75}));
    }

    #[test]
    fn two_attempts_at_one_sample_would_be_one_session() {
        let refusal = written(VerlExporter::new, [straight(), straight()]).unwrap_err().to_string();
        assert!(refusal.contains("another trial is sample 0 of group \"group\" too"), "{refusal}");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(group in any_group()) {
            let lines = objects(VerlExporter::new, group.clone());
            prop_assert_eq!(lines.len(), group.len());
            for (line, trial) in lines.iter().zip(&group) {
                prop_assert_eq!(line["session_id"].as_i64(), Some(trial.rows[0].sample_index.into()));
                let outputs = line["outputs"].as_array().unwrap();
                let rows = compared_rows(trial);
                prop_assert_eq!(outputs.len(), rows.len());
                for (output, row) in outputs.iter().zip(rows) {
                    let prompt = ints(&output["prompt_ids"]);
                    let start = prompt.len();
                    prop_assert_eq!(row.loss_mask[..start].iter().max(), Some(&0));
                    prop_assert_eq!(&[prompt, ints(&output["response_ids"])].concat(), &row.token_ids);
                    prop_assert_eq!(&output["response_mask"], &json!(row.loss_mask[start..]));
                    prop_assert_eq!(float_bits(&output["response_logprobs"]), bits(&row.logprobs[start..]));
                    let reward = output["reward_score"].as_f64();
                    prop_assert!(trial.reward.is_none() || reward == trial.reward);
                    prop_assert!(reward.is_some());
                }
            }
        }
    }
}

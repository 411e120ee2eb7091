//! Agent Lightning (package `agentlightning` 1.0.2): one line per trial, a `CompletedRollout` with its `Triplet`s, which
//! `RolloutAdapter.get_train_data_batch` converts to verl's `DataProto`.
//!
//! A triplet is a run of trained tokens of one call: `prompt.token_ids` (all earlier tokens of its branch),
//! `response.token_ids` and `response.log_probs`, which have the same length. The trainer has no mask within a response,
//! so tokens that are not trained appear in prompts only. Its level `trajectory` joins consecutive triplets whose prompts
//! extend each other, and masks the tokens between them. Its level `transition` makes a row of each. `metadata.server` has
//! the model and the oldest policy version of the response.
//!
//! `data_id` is the group, `rollout_id` the trial, and `sample_idx_in_step` the number of the group in the file.
//! `final_reward` is the reward, which the last triplet has too. A trial without a reward has `final_reward` null, the
//! state `failed` and no triplets. The trainer skips a rollout without triplets: it is not in the group's baseline, also
//! if it has a reward.
//!
//! verl computes advantages per row, so a trial counts once per row. `algorithm.enable_rollout_level_advantage` counts
//! it once. Groups may have any size. `enqueue_time` is 0, because no time of the trainer's queue exists.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::export::exporter::ExportError;
use crate::export::shared::call_run::{CallRun, call_runs};
use crate::export::shared::compared::{ComparedExporter, ComparedShape, ComparedTrial, TrialLines};
use crate::export::shared::naming::{group_name, group_number};
use crate::export::shared::policy_number::PolicyNumbers;
use crate::export::shared::sequence::Sequence;

/// Writes completed rollouts.
pub type AgentLightningExporter<W> = ComparedExporter<W, AgentLightning>;

/// The shape of `CompletedRollout`.
#[derive(Debug, Default)]
pub struct AgentLightning;

#[derive(Serialize)]
struct CompletedRollout<'a> {
    rollout_id: &'a str,
    data_id: &'a str,
    step: usize,
    sample_idx_in_step: i64,
    enqueue_time: f64,
    final_reward: Option<f64>,
    triplets: Vec<Triplet<'a>>,
    metadata: Metadata<'a>,
    rollout_state: &'static str,
    error_message: Option<&'a str>,
}

#[derive(Serialize)]
struct Triplet<'a> {
    prompt: Prompt<'a>,
    response: Response<'a>,
    reward: Option<f64>,
    metadata: TripletMetadata<'a>,
}

#[derive(Serialize)]
struct Prompt<'a> {
    token_ids: &'a [i32],
}

#[derive(Serialize)]
struct Response<'a> {
    token_ids: &'a [i32],
    log_probs: &'a [f32],
}

#[derive(Serialize)]
struct TripletMetadata<'a> {
    server: Server<'a>,
    branch_index: i32,
}

#[derive(Serialize)]
struct Server<'a> {
    model: &'a str,
    version: i64,
}

#[derive(Serialize)]
struct Metadata<'a> {
    task_id: &'a str,
    sample_index: i32,
    rewards: &'a BTreeMap<String, f64>,
}

impl ComparedShape for AgentLightning {
    fn write<W: Write>(
        &mut self,
        trial: &ComparedTrial,
        out: &mut TrialLines<'_, W>,
    ) -> Result<(), ExportError> {
        let Some(row) = trial.rows.first() else { return Ok(()) };
        trial.rows.iter().try_for_each(|row| Sequence::of(row).map(|_| ()))?;
        out.leave_out_advantage(trial);
        let final_reward = (!trial.is_stand_in).then_some(trial.reward);
        let triplets = triplets(trial, final_reward);
        out.tally.add(
            "trials: that they are of their group (nothing of them is trained, and they have no triplet)",
            usize::from(triplets.is_empty()),
        );
        let line = CompletedRollout {
            rollout_id: &row.trial_id,
            data_id: group_name(row),
            step: 0,
            sample_idx_in_step: group_number(trial.group, trial.ordinal),
            enqueue_time: 0.0,
            final_reward,
            triplets,
            metadata: Metadata {
                task_id: &row.task_id,
                sample_index: row.sample_index,
                rewards: &row.rewards,
            },
            rollout_state: if trial.is_stand_in { "failed" } else { "succeeded" },
            error_message: row.failure_cause.as_deref(),
        };
        out.lines.write(&row.trial_id, &line)
    }
}

/// Returns the triplets of all branches, branch by branch. The last one has the reward.
fn triplets(trial: &ComparedTrial, final_reward: Option<f64>) -> Vec<Triplet<'_>> {
    let numbers = PolicyNumbers::of(&trial.rows);
    let mut triplets: Vec<_> =
        trial.rows.iter().flat_map(call_runs).map(|run| triplet(&run, numbers)).collect();
    if let Some(last) = triplets.last_mut() {
        last.reward = final_reward;
    }
    triplets
}

fn triplet<'a>(run: &CallRun<'a>, numbers: PolicyNumbers) -> Triplet<'a> {
    Triplet {
        prompt: Prompt { token_ids: run.prompt_ids() },
        response: Response { token_ids: run.ids(), log_probs: run.logprobs() },
        reward: None,
        metadata: TripletMetadata {
            server: Server { model: &run.row.model, version: run.oldest_version(numbers) },
            branch_index: run.row.branch_index,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::export::exporter::Trial;
    use crate::export::testing::any_trial::{any_group, compared_rows};
    use crate::export::testing::fixture::{forked, straight};
    use crate::export::testing::read_back::{bits, float_bits, ints, objects, told, written};

    #[test]
    fn a_trial_is_a_rollout_of_what_is_trained() {
        let (lines, omissions) =
            written(AgentLightningExporter::new, [Trial { group: None, ..straight() }]).unwrap();
        let expected = r#"{"rollout_id":"straight","data_id":"group","step":0,"sample_idx_in_step":-1,"enqueue_time":0.0,"final_reward":1.0,"triplets":[{"prompt":{"token_ids":[1,2]},"response":{"token_ids":[3],"log_probs":[-3.0]},"reward":null,"metadata":{"server":{"model":"m","version":0},"branch_index":0}},{"prompt":{"token_ids":[1,2,3,4]},"response":{"token_ids":[5,6],"log_probs":[-5.0,-6.0]},"reward":1.0,"metadata":{"server":{"model":"m","version":0},"branch_index":0}}],"metadata":{"task_id":"org/task","sample_index":0,"rewards":{}},"rollout_state":"succeeded","error_message":null}"#;
        assert_eq!(lines, [expected]);
        assert_eq!(told(&omissions), ["1 trials: their advantage, which the trainer works out itself"]);
    }

    #[test]
    fn a_shared_answer_is_a_triplet_once_and_a_prompt_after() {
        let line = objects(AgentLightningExporter::new, [Trial { group: None, ..forked() }]).remove(0);
        let ids = |part: &str| -> Vec<_> {
            let triplets = line["triplets"].as_array().unwrap();
            triplets.iter().map(|triplet| ints(&triplet[part]["token_ids"])).collect()
        };
        assert_eq!(ids("prompt"), [vec![1, 2], vec![1, 2, 3, 4], vec![1, 2, 3, 7]]);
        assert_eq!(ids("response"), [vec![3], vec![5], vec![8, 9]]);
    }

    #[test]
    fn a_trial_without_a_reward_failed_and_is_skipped() {
        let mut masked = Trial { reward: None, advantage: None, ..forked() };
        masked.rows.iter_mut().for_each(|row| {
            row.loss_mask.fill(0);
            row.failure_cause = Some("VerifierTimeoutError".into());
        });
        let (lines, omissions) = written(AgentLightningExporter::new, [straight(), masked]).unwrap();
        let line: Value = serde_json::from_str(&lines[1]).unwrap();
        assert_eq!((&line["final_reward"], &line["triplets"]), (&json!(null), &json!([])));
        assert_eq!(
            (&line["rollout_state"], &line["error_message"]),
            (&json!("failed"), &json!("VerifierTimeoutError"))
        );
        let what =
            "1 trials: that they are of their group (nothing of them is trained, and they have no triplet)";
        assert!(told(&omissions).contains(&what.to_owned()));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(group in any_group()) {
            let lines = objects(AgentLightningExporter::new, group.clone());
            prop_assert_eq!(lines.len(), group.len());
            for (line, trial) in lines.iter().zip(&group) {
                prop_assert_eq!(line["final_reward"].as_f64(), trial.reward);
                let mut trained = 0;
                for triplet in line["triplets"].as_array().unwrap() {
                    let row = &trial.rows[triplet["metadata"]["branch_index"].as_u64().unwrap() as usize];
                    let (prompt, ids) =
                        (ints(&triplet["prompt"]["token_ids"]), ints(&triplet["response"]["token_ids"]));
                    let run = prompt.len()..prompt.len() + ids.len();
                    prop_assert_eq!(&[prompt, ids].concat(), &row.token_ids[..run.end]);
                    prop_assert!(row.loss_mask[run.clone()].iter().all(|&mask| mask == 1));
                    prop_assert_eq!(float_bits(&triplet["response"]["log_probs"]), bits(&row.logprobs[run.clone()]));
                    trained += run.len();
                }
                let masks = compared_rows(trial).into_iter().flat_map(|row| row.loss_mask);
                prop_assert_eq!(trained, masks.filter(|&mask| mask == 1).count());
            }
        }
    }
}

//! rLLM (commit 9beb6e0, not in a package index): one line per trial, an `Episode` as `Episode.from_dict` reads it.
//!
//! The trial is the episode and its only trajectory, and a step is a run of trained tokens. `model_output` of a step
//! has `prompt_ids` (all earlier tokens of its branch), `completion_ids` and `logprobs`, from which rLLM's `Step` fills
//! its own fields. `weight_version` is the oldest policy version that sampled one of its tokens. Steps of a branch
//! extend each other. The trainer merges these into one sequence and masks the tokens between them. A line nevertheless
//! has a prompt for each step, so its size grows with the square of their number.
//!
//! rLLM has no masks: tokens that are not trained appear in prompts only. It compares trajectories of the same task,
//! which is the part before the `:` in the episode's `id`. That part is the group here, with `%` and `:` written as
//! `%25` and `%3A`. All steps of a trajectory have its one advantage, with any number of forks. A loss that is averaged
//! per sequence counts each branch. A trajectory without steps does not count in its group, so the reward of a trial
//! without trained tokens does not count either. `is_correct` is a reward above 0, because no other field defines
//! "solved". rLLM's rejection sampling accepts a group with correct and incorrect episodes, and computes pass rates
//! from `is_correct`. `advantage` is that of the export, if it has advantages. `use_precomputed_advantage` trains with
//! it unchanged. The default of the export is rLLM's own rule, over all trials with a reward: rLLM itself does not count a
//! trial that has a reward and no step.

use std::io::Write;
use std::ops::Range;

use serde::Serialize;

use crate::export::exporter::ExportError;
use crate::export::shared::compared::{ComparedExporter, ComparedShape, ComparedTrial, TrialLines};
use crate::export::shared::naming::{Samples, group_name};
use crate::export::shared::policy_number::PolicyNumbers;
use crate::export::shared::runs::trained_runs;
use crate::export::shared::sequence::Sequence;
use crate::row::RolloutRow;

/// Writes episodes.
pub type RllmExporter<W> = ComparedExporter<W, Rllm>;

/// The shape of `Episode`.
#[derive(Debug, Default)]
pub struct Rllm {
    samples: Samples,
}

#[derive(Serialize)]
struct Episode<'a> {
    id: String,
    task: &'a str,
    termination_reason: &'static str,
    is_correct: bool,
    trajectories: [EpisodeTrajectory<'a>; 1],
    metrics: Empty,
    info: Info<'a>,
}

#[derive(Serialize)]
struct EpisodeTrajectory<'a> {
    uid: &'a str,
    name: &'static str,
    task: &'a str,
    steps: Vec<EpisodeStep<'a>>,
    reward: f64,
    info: Empty,
}

#[derive(Serialize)]
struct EpisodeStep<'a> {
    prompt_ids: [i32; 0],
    response_ids: [i32; 0],
    logprobs: [f32; 0],
    chat_completions: [(); 0],
    observation: (),
    thought: &'static str,
    action: (),
    model_response: &'static str,
    model_output: ModelOutput<'a>,
    info: StepInfo,
    reward: f64,
    done: bool,
    mc_return: f64,
    advantage: Option<f64>,
}

#[derive(Serialize)]
struct ModelOutput<'a> {
    prompt_ids: &'a [i32],
    completion_ids: &'a [i32],
    logprobs: &'a [f32],
    prompt_length: usize,
    completion_length: usize,
    weight_version: i64,
}

#[derive(Serialize)]
struct Info<'a> {
    trial_id: &'a str,
    group_id: Option<&'a str>,
    sample_index: i32,
}

#[derive(Serialize)]
struct StepInfo {
    branch_index: i32,
}

#[derive(Serialize)]
struct Empty {}

impl ComparedShape for Rllm {
    fn write<W: Write>(
        &mut self,
        trial: &ComparedTrial,
        out: &mut TrialLines<'_, W>,
    ) -> Result<(), ExportError> {
        let branches = trial.rows.iter().map(Sequence::of).collect::<Result<Vec<_>, _>>()?;
        // The last branch has the ending of the trial, on which the termination reason depends.
        let Some(row) = branches.last().map(|branch| branch.row) else { return Ok(()) };
        self.samples.add(row)?;
        let steps = steps(&branches, trial);
        out.tally.add(
            "trials: that they are of their group (nothing of them is trained, and they have no step)",
            usize::from(steps.is_empty()),
        );
        out.leave_out_rewards_by_name(row);
        out.tally.add(
            "trials: what solved means (is_correct is a reward above 0)",
            usize::from(!trial.is_stand_in && trial.reward != 0.0 && trial.reward != 1.0),
        );
        let episode = Episode {
            // The part before the colon is the group in which rLLM compares, so it must not contain a colon.
            id: format!("{}:{}", encoded(group_name(row)), row.sample_index),
            task: &row.task_id,
            termination_reason: termination_reason(row),
            is_correct: trial.reward > 0.0,
            trajectories: [EpisodeTrajectory {
                uid: &row.trial_id,
                name: "rolltap",
                task: &row.task_id,
                steps,
                reward: trial.reward,
                info: Empty {},
            }],
            metrics: Empty {},
            info: Info {
                trial_id: &row.trial_id,
                group_id: row.group_id.as_deref(),
                sample_index: row.sample_index,
            },
        };
        out.lines.write(&row.trial_id, &episode)
    }
}

/// Returns the trained runs of all branches. The last one ends the episode.
fn steps<'a>(branches: &[Sequence<'a>], trial: &ComparedTrial) -> Vec<EpisodeStep<'a>> {
    let versions = PolicyNumbers::of(&trial.rows);
    let runs = branches
        .iter()
        .flat_map(|branch| trained_runs(&branch.row.loss_mask).map(move |run| (branch.row, run)));
    let mut steps: Vec<_> = runs.map(|(row, run)| step(row, run, versions, trial.advantage)).collect();
    if let Some(last) = steps.last_mut() {
        // Only one step ends the episode, even if the trial forked.
        last.done = true;
    }
    steps
}

fn step(
    row: &RolloutRow,
    run: Range<usize>,
    versions: PolicyNumbers,
    advantage: Option<f64>,
) -> EpisodeStep<'_> {
    EpisodeStep {
        prompt_ids: [],
        response_ids: [],
        logprobs: [],
        chat_completions: [],
        observation: (),
        thought: "",
        action: (),
        model_response: "",
        model_output: ModelOutput {
            prompt_ids: row.token_ids.get(..run.start).unwrap_or_default(),
            prompt_length: run.start,
            completion_length: run.len(),
            weight_version: versions.oldest(row, run.clone()),
            logprobs: row.logprobs.get(run.clone()).unwrap_or_default(),
            completion_ids: row.token_ids.get(run).unwrap_or_default(),
        },
        info: StepInfo { branch_index: row.branch_index },
        reward: 0.0,
        done: false,
        mc_return: 0.0,
        advantage,
    }
}

/// Escapes the group's name, because rLLM splits an episode's id at its first colon.
fn encoded(group: &str) -> String {
    group.replace('%', "%25").replace(':', "%3A")
}

/// Returns rLLM's name of the ending. A disconnected agent and a sealed trial have the same status, so the cause is
/// `unknown`.
fn termination_reason(row: &RolloutRow) -> &'static str {
    match row.status.as_str() {
        "completed" => "env_done",
        "truncated" => "max_response_length_exceeded",
        "failed" => "error",
        _ => "unknown",
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

    fn step_outputs(episode: &Value) -> Vec<Value> {
        let steps = episode["trajectories"][0]["steps"].as_array().unwrap();
        steps.iter().map(|step| step["model_output"].clone()).collect()
    }

    #[test]
    fn a_trial_is_an_episode_of_what_is_trained() {
        let (lines, omissions) = written(RllmExporter::new, [Trial { group: None, ..straight() }]).unwrap();
        let step = |prompt: &str, done: bool, output: &str| {
            format!(
                r#"{{"prompt_ids":[],"response_ids":[],"logprobs":[],"chat_completions":[],"observation":null,"thought":"","action":null,"model_response":"","model_output":{{"prompt_ids":{prompt},{output},"weight_version":0}},"info":{{"branch_index":0}},"reward":0.0,"done":{done},"mc_return":0.0,"advantage":0.5}}"#
            )
        };
        let first = step(
            "[1,2]",
            false,
            r#""completion_ids":[3],"logprobs":[-3.0],"prompt_length":2,"completion_length":1"#,
        );
        let last = step(
            "[1,2,3,4]",
            true,
            r#""completion_ids":[5,6],"logprobs":[-5.0,-6.0],"prompt_length":4,"completion_length":2"#,
        );
        let expected = format!(
            r#"{{"id":"group:0","task":"org/task","termination_reason":"env_done","is_correct":true,"trajectories":[{{"uid":"straight","name":"rolltap","task":"org/task","steps":[{first},{last}],"reward":1.0,"info":{{}}}}],"metrics":{{}},"info":{{"trial_id":"straight","group_id":"group","sample_index":0}}}}"#
        );
        assert_eq!(lines, [expected]);
        assert_eq!(omissions, []);
    }

    /// rLLM's rejection sampling drops a group in which no trial, or every trial, is correct.
    #[test]
    fn an_episode_is_correct_where_its_reward_is_above_0() {
        let rewarded = |reward: f64| Trial { reward: Some(reward), group: None, ..straight() };
        for (reward, is_correct) in [(1.0, true), (0.25, true), (0.0, false), (-1.0, false)] {
            let (lines, omissions) = written(RllmExporter::new, [rewarded(reward)]).unwrap();
            let episode: Value = serde_json::from_str(&lines[0]).unwrap();
            assert_eq!(episode["is_correct"], is_correct, "{reward}");
            let what = "1 trials: what solved means (is_correct is a reward above 0)";
            let is_told = told(&omissions).contains(&what.to_owned());
            assert_eq!(is_told, reward != 0.0 && reward != 1.0, "{reward}");
        }
    }

    #[test]
    fn a_shared_answer_is_a_step_once_and_a_prompt_after() {
        let episode = objects(RllmExporter::new, [Trial { group: None, ..forked() }]).remove(0);
        let ids =
            |name: &str| step_outputs(&episode).iter().map(|output| ints(&output[name])).collect::<Vec<_>>();
        assert_eq!(ids("prompt_ids"), [vec![1, 2], vec![1, 2, 3, 4], vec![1, 2, 3, 7]]);
        assert_eq!(ids("completion_ids"), [vec![3], vec![5], vec![8, 9]]);
    }

    #[test]
    fn a_trial_that_trains_nothing_is_out_of_its_group() {
        let mut masked = Trial { reward: None, advantage: None, ..forked() };
        masked.rows.iter_mut().for_each(|row| row.loss_mask.fill(0));
        let (lines, omissions) = written(RllmExporter::new, [straight(), masked]).unwrap();
        let episode: Value = serde_json::from_str(&lines[1]).unwrap();
        assert_eq!(episode["trajectories"][0]["steps"], json!([]));
        let what =
            "1 trials: that they are of their group (nothing of them is trained, and they have no step)";
        assert!(told(&omissions).contains(&what.to_owned()));
    }

    #[test]
    fn groups_keep_apart_though_rllm_cuts_their_names_at_a_colon() {
        let named = |group: &str, index| {
            let mut trial = Trial { group: None, ..straight() };
            trial.rows[0].group_id = Some(group.into());
            trial.rows[0].sample_index = index;
            trial
        };
        let episodes =
            objects(RllmExporter::new, [named("job:a", 0), named("job:b", 1), named("job%3Aa", 2)]);
        let ids: Vec<_> = episodes.iter().map(|episode| &episode["id"]).collect();
        assert_eq!(ids, ["job%3Aa:0", "job%3Ab:1", "job%253Aa:2"]);
    }

    #[test]
    fn a_step_is_as_old_as_its_oldest_token() {
        let mut trial = Trial { group: None, ..straight() };
        trial.rows[0].token_version = vec![-1, -1, 3, -1, 4, 5];
        let episode = objects(RllmExporter::new, [trial]).remove(0);
        let versions: Vec<_> =
            step_outputs(&episode).iter().map(|output| output["weight_version"].clone()).collect();
        assert_eq!(versions, [3, 4]);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(group in any_group()) {
            let episodes = objects(RllmExporter::new, group.clone());
            prop_assert_eq!(episodes.len(), group.len());
            for (episode, trial) in episodes.iter().zip(&group) {
                let steps = episode["trajectories"][0]["steps"].as_array().unwrap();
                let mut trained = 0;
                for step in steps {
                    let branch = step["info"]["branch_index"].as_i64().unwrap() as usize;
                    let (row, output) = (&trial.rows[branch], &step["model_output"]);
                    let sequence = [ints(&output["prompt_ids"]), ints(&output["completion_ids"])].concat();
                    let (end, length) = (sequence.len(), ints(&output["completion_ids"]).len());
                    prop_assert_eq!(&sequence, &row.token_ids[..end]);
                    prop_assert!(row.loss_mask[end - length..end].iter().all(|&mask| mask == 1));
                    prop_assert_eq!(float_bits(&output["logprobs"]), bits(&row.logprobs[end - length..end]));
                    trained += length;
                }
                let rows = compared_rows(trial);
                let all: usize = rows.iter().map(|row| row.loss_mask.iter().filter(|&&mask| mask == 1).count()).sum();
                prop_assert_eq!(trained, all);
                let reward = episode["trajectories"][0]["reward"].as_f64();
                prop_assert!(trial.reward.is_none() || reward == trial.reward);
            }
        }
    }
}

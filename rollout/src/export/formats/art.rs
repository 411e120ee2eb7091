//! OpenPipe ART (package `openpipe-art` 0.5.23): one line per trial, from which the reader makes an `art.Trajectory`.
//!
//! A line is `{choices, reward, initial_policy_version, final_policy_version, metrics, metadata}`. A choice is a run of
//! trained tokens of one call: `prompt_token_ids` (all earlier tokens of its branch), `token_ids`, `logprobs` of the same
//! length, and `finish_reason`. The reader makes OpenAI's `Choice` of each, and puts them into `messages_and_choices`. ART
//! trains the tokens of `Choice`s with these ids. It joins choices whose prompts extend each other, and masks the tokens
//! between them. A `Choice` that is read from JSON is a message to ART, and nothing of it is trained.
//!
//! Trajectories with `exchanges` are not used. ART 0.5.23 marks the later prompts of `completions` exchanges as not exact,
//! and then refuses to train; `chat_completions` exchanges require messages that render to the same ids.
//!
//! ART compares the rewards of the trajectories of one `TrajectoryGroup` with the population's standard deviation. A
//! group may have any size, so a trial without a reward has no line. A trajectory without choices counts with its reward.
//! The tokens of a trajectory together weigh as much as those of any other, with any number of forks. `metrics` has the
//! verifier's rewards by name, and `metadata` identifies the trial.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::export::exporter::ExportError;
use crate::export::shared::call_run::{CallRun, call_runs};
use crate::export::shared::compared::{ComparedExporter, ComparedShape, ComparedTrial, TrialLines};
use crate::export::shared::naming::group_name;
use crate::export::shared::policy_number::PolicyNumbers;
use crate::export::shared::sequence::Sequence;

/// Writes trajectories.
pub type ArtExporter<W> = ComparedExporter<W, Art>;

/// The shape of a trajectory.
#[derive(Debug, Default)]
pub struct Art;

#[derive(Serialize)]
struct ArtTrajectory<'a> {
    choices: Vec<Choice<'a>>,
    reward: f64,
    initial_policy_version: Option<i64>,
    final_policy_version: Option<i64>,
    metrics: &'a BTreeMap<String, f64>,
    metadata: Metadata<'a>,
}

#[derive(Serialize)]
struct Choice<'a> {
    prompt_token_ids: &'a [i32],
    token_ids: &'a [i32],
    logprobs: &'a [f32],
    finish_reason: &'a str,
}

#[derive(Serialize)]
struct Metadata<'a> {
    trial_id: &'a str,
    task_id: &'a str,
    group_id: &'a str,
    sample_index: i32,
}

impl ComparedShape for Art {
    fn write<W: Write>(
        &mut self,
        trial: &ComparedTrial,
        out: &mut TrialLines<'_, W>,
    ) -> Result<(), ExportError> {
        let Some(row) = trial.rows.first() else { return Ok(()) };
        trial.rows.iter().try_for_each(|row| Sequence::of(row).map(|_| ()))?;
        if out.leaves_out(trial) {
            return Ok(());
        }
        out.leave_out_advantage(trial);
        let choices: Vec<_> = trial.rows.iter().flat_map(call_runs).map(|run| choice(&run)).collect();
        let versions = versions(trial).filter(|_| !choices.is_empty());
        out.tally.add(
            "trials: which of their tokens are of which policy version",
            usize::from(versions.is_some_and(|(oldest, newest)| oldest != newest)),
        );
        let line = ArtTrajectory {
            choices,
            reward: trial.reward,
            initial_policy_version: versions.map(|(oldest, _)| oldest),
            final_policy_version: versions.map(|(_, newest)| newest),
            metrics: &row.rewards,
            metadata: Metadata {
                trial_id: &row.trial_id,
                task_id: &row.task_id,
                group_id: group_name(row),
                sample_index: row.sample_index,
            },
        };
        out.lines.write(&row.trial_id, &line)
    }
}

/// Returns the lowest and the highest number of the policy versions of the trial's trained tokens.
fn versions(trial: &ComparedTrial) -> Option<(i64, i64)> {
    let numbers = PolicyNumbers::of(&trial.rows);
    let spans = || trial.rows.iter().map(|row| numbers.span(row));
    Some((spans().map(|span| span.0).min()?, spans().map(|span| span.1).max()?))
}

fn choice<'a>(run: &CallRun<'a>) -> Choice<'a> {
    Choice {
        prompt_token_ids: run.prompt_ids(),
        token_ids: run.ids(),
        logprobs: run.logprobs(),
        // OpenAI's type requires one of its own reasons, and ART does not train by it.
        finish_reason: run.finish_reason().filter(|reason| OPENAI_REASONS.contains(reason)).unwrap_or("stop"),
    }
}

/// The finish reasons that OpenAI's `Choice` accepts.
const OPENAI_REASONS: [&str; 5] = ["stop", "length", "tool_calls", "content_filter", "function_call"];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::export::exporter::Trial;
    use crate::export::testing::any_trial::{any_group, compared_rows};
    use crate::export::testing::fixture::{forked, judged_failed_and_trained, straight};
    use crate::export::testing::read_back::{bits, float_bits, ints, objects, told, written};

    #[test]
    fn a_trial_is_a_trajectory_of_what_is_trained() {
        let (lines, omissions) = written(ArtExporter::new, [straight(), forked()]).unwrap();
        let expected = [
            r#"{"choices":[{"prompt_token_ids":[1,2],"token_ids":[3],"logprobs":[-3.0],"finish_reason":"stop"},{"prompt_token_ids":[1,2,3,4],"token_ids":[5,6],"logprobs":[-5.0,-6.0],"finish_reason":"stop"}],"reward":1.0,"initial_policy_version":0,"final_policy_version":0,"metrics":{},"metadata":{"trial_id":"straight","task_id":"org/task","group_id":"group","sample_index":0}}"#,
            r#"{"choices":[{"prompt_token_ids":[1,2],"token_ids":[3],"logprobs":[-3.0],"finish_reason":"stop"},{"prompt_token_ids":[1,2,3,4],"token_ids":[5],"logprobs":[-5.0],"finish_reason":"stop"},{"prompt_token_ids":[1,2,3,7],"token_ids":[8,9],"logprobs":[-8.0,-9.0],"finish_reason":"stop"}],"reward":0.0,"initial_policy_version":0,"final_policy_version":0,"metrics":{},"metadata":{"trial_id":"forked","task_id":"org/task","group_id":"group","sample_index":1}}"#,
        ];
        assert_eq!(lines, expected);
        assert_eq!(told(&omissions), ["2 trials: their advantage, which the trainer works out itself"]);
    }

    #[test]
    fn a_failed_trial_is_left_out_and_a_judged_one_counts() {
        let (lines, omissions) = written(ArtExporter::new, judged_failed_and_trained()).unwrap();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with(r#"{"choices":[],"reward":1.0,"initial_policy_version":null,"#));
        assert!(
            told(&omissions).contains(&"1 trials: they have no reward, so that they have no line".to_owned())
        );
    }

    #[test]
    fn a_finish_reason_that_openai_lacks_is_stop() {
        let mut trial = Trial { group: None, ..straight() };
        for (reason, expected) in [("abort", "stop"), ("length", "length")] {
            trial.rows[0].calls[1].finish_reason = Some(reason.into());
            let line = objects(ArtExporter::new, [trial.clone()]).remove(0);
            assert_eq!(line["choices"][1]["finish_reason"], expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(group in any_group()) {
            let lines = objects(ArtExporter::new, group.clone());
            let rewarded: Vec<_> = group.iter().filter(|trial| trial.reward.is_some()).collect();
            prop_assert_eq!(lines.len(), rewarded.len());
            for (line, trial) in lines.iter().zip(rewarded) {
                prop_assert_eq!(line["reward"].as_f64(), trial.reward);
                let rows = compared_rows(trial);
                let mut runs = rows.iter().flat_map(call_runs);
                for choice in line["choices"].as_array().unwrap() {
                    let run = runs.next().unwrap();
                    prop_assert_eq!(ints(&choice["prompt_token_ids"]), run.prompt_ids());
                    prop_assert_eq!(ints(&choice["token_ids"]), run.ids());
                    prop_assert_eq!(float_bits(&choice["logprobs"]), bits(run.logprobs()));
                }
                prop_assert!(runs.next().is_none());
            }
        }
    }
}

//! The trajectory, with ATIF's names and order of fields.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::message::role_of;
use super::step::Step;
use crate::export::exporter::{ExportError, Trial};
use crate::export::shared::float_text::finite;
use crate::export::shared::transcript::{CallWords, call_words};
use crate::export::shared::turn::{BranchTurn, turns};
use crate::row::RolloutRow;

const NOTES: &str = "Each answer is a step of the first trajectory that has it, with the ids of its whole prompt. The \
                     messages that its request adds to the conversation are the steps before it, and the results of \
                     tools are in the step of their call. The message of an answer is empty if it was not recorded.";

#[derive(Serialize)]
pub(super) struct Trajectory<'a> {
    schema_version: &'static str,
    session_id: &'a str,
    trajectory_id: String,
    agent: Agent<'a>,
    steps: Vec<Step<'a>>,
    notes: &'static str,
    final_metrics: FinalMetrics,
    extra: Extra<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subagent_trajectories: Vec<Trajectory<'a>>,
}

#[derive(Serialize)]
struct Agent<'a> {
    name: &'static str,
    version: &'static str,
    model_name: &'a str,
}

#[derive(Serialize)]
struct FinalMetrics {
    total_prompt_tokens: usize,
    total_completion_tokens: usize,
    total_steps: usize,
}

#[derive(Serialize)]
struct Extra<'a> {
    branch_index: i32,
    branch_cause: &'a str,
    status: &'a str,
    #[serde(flatten)]
    trial: Option<TrialExtra<'a>>,
}

/// The data of the trial, which is the same for all branches. Only the root has it.
#[derive(Serialize)]
struct TrialExtra<'a> {
    task_id: &'a str,
    group_id: Option<&'a str>,
    group_size: Option<i32>,
    sample_index: i32,
    attempt: i32,
    #[serde(serialize_with = "finite")]
    reward: Option<f64>,
    rewards: &'a BTreeMap<String, f64>,
    reward_valid: bool,
    failure_cause: Option<&'a str>,
    suspicious: Option<&'a [String]>,
    #[serde(serialize_with = "finite")]
    advantage: Option<f64>,
    logprobs_mode: &'a str,
    tokenizer_hash: Option<&'a str>,
    version_labels: BTreeMap<&'a str, &'a str>,
}

impl<'a> Trajectory<'a> {
    /// Returns the trajectory with all branches of the trial, or `None` if no branch has its own answer.
    ///
    /// # Errors
    /// Spans are not in order, or the messages of a call are no list of chat messages.
    pub(super) fn of(trial: &'a Trial) -> Result<Option<Self>, ExportError> {
        let mut told = HashSet::new();
        let branches = trial.rows.iter().map(|row| Self::of_branch(row, &mut told));
        let mut branches = branches.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?.into_iter();
        let Some(root) = branches.next() else { return Ok(None) };
        // Only the first branch is the root, so that the data of the trial appear once.
        let extra = Extra { trial: TrialExtra::of(trial), ..root.extra };
        Ok(Some(Self { extra, subagent_trajectories: branches.collect(), ..root }))
    }

    /// Returns the trajectory of one branch. `told` has the answers of earlier branches, by call and choice.
    fn of_branch(
        row: &'a RolloutRow,
        told: &mut HashSet<(&'a str, i32)>,
    ) -> Result<Option<Self>, ExportError> {
        let turns = turns(row)?.into_iter().zip(call_words(row)?);
        // An answer belongs to the first branch that has it, so that its tokens appear once in the line.
        let own: Vec<_> =
            turns.filter(|(turn, _)| told.insert((&turn.span.call_id, turn.span.choice_index))).collect();
        // Every answer of this branch is in an earlier branch, so it has no steps of its own.
        if own.is_empty() {
            return Ok(None);
        }
        let steps = steps(&own);
        let final_metrics = FinalMetrics {
            total_prompt_tokens: own.iter().map(|(turn, _)| turn.answer.start).sum(),
            total_completion_tokens: own.iter().map(|(turn, _)| turn.answer.len()).sum(),
            total_steps: steps.len(),
        };
        Ok(Some(Self {
            schema_version: "ATIF-v1.8",
            session_id: &row.trial_id,
            trajectory_id: format!("{}/{}", row.trial_id, row.branch_index),
            agent: Agent { name: "unknown", version: "unknown", model_name: &row.model },
            steps,
            notes: NOTES,
            final_metrics,
            extra: Extra {
                branch_index: row.branch_index,
                branch_cause: &row.branch_cause,
                status: &row.status,
                trial: None,
            },
            subagent_trajectories: Vec::new(),
        }))
    }

    /// Returns the number of steps of all branches for which `is_so` is false.
    pub(super) fn steps_without(&self, is_so: fn(&Step<'a>) -> bool) -> usize {
        let here = self.steps.iter().filter(|step| !is_so(step)).count();
        here + self.subagent_trajectories.iter().map(|other| other.steps_without(is_so)).sum::<usize>()
    }
}

/// Returns the steps of these turns: the messages that each request adds, and the answer.
fn steps<'a>(turns: &[(BranchTurn<'a>, Option<CallWords>)]) -> Vec<Step<'a>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for (turn, words) in turns {
        for message in words.iter().flat_map(|words| &words.added) {
            let is_observed =
                role_of(message) == "tool" && steps.iter_mut().rev().any(|step| step.observe(message));
            if !is_observed {
                steps.push(Step::of_message(steps.len() + 1, message));
            }
        }
        steps.push(Step::of_answer(steps.len() + 1, turn, words.as_ref().map(|words| &words.answer)));
    }
    steps
}

impl<'a> TrialExtra<'a> {
    fn of(trial: &'a Trial) -> Option<Self> {
        let row = trial.rows.first()?;
        let labels = trial.rows.iter().flat_map(|row| &row.version_labels);
        Some(Self {
            task_id: &row.task_id,
            group_id: row.group_id.as_deref(),
            group_size: row.group_size,
            sample_index: row.sample_index,
            attempt: row.attempt,
            reward: trial.reward,
            rewards: &row.rewards,
            reward_valid: row.reward_valid,
            failure_cause: row.failure_cause.as_deref(),
            suspicious: row.suspicious.as_deref(),
            advantage: trial.advantage,
            logprobs_mode: &row.logprobs_mode,
            tokenizer_hash: row.tokenizer_hash.as_deref(),
            version_labels: labels.map(|(version, label)| (version.as_str(), label.as_str())).collect(),
        })
    }
}

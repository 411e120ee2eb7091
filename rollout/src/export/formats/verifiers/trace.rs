//! The record, with verifiers' names and order of fields.

use std::collections::BTreeMap;
use std::iter::repeat_n;

use jiff::Timestamp;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::graph::{Graph, Node, Part};
use crate::export::exporter::Trial;
use crate::export::shared::float_text::{Each, Exact, finite};
use crate::export::shared::row_queries::is_trained;
use crate::export::shared::turn::BranchTurn;
use crate::row::RolloutRow;

#[derive(Serialize)]
pub(super) struct Trace<'a> {
    version: u8,
    id: &'a str,
    verifiers: Build,
    task: Task<'a>,
    agent: Agent<'a>,
    nodes: Vec<GraphNode<'a>>,
    calls: Vec<ModelCall<'a>>,
    rewards: Rewards,
    metrics: &'a BTreeMap<String, f64>,
    info: Info<'a>,
    is_completed: bool,
    ok: bool,
    stop_condition: Option<&'static str>,
    errors: Vec<TraceError<'a>>,
}

/// The version of verifiers that defines this shape.
#[derive(Serialize)]
struct Build {
    version: &'static str,
}

#[derive(Serialize)]
struct Task<'a> {
    r#type: &'static str,
    data: TaskData<'a>,
    key: &'a str,
}

#[derive(Serialize)]
struct TaskData<'a> {
    id: &'a str,
    name: &'a str,
}

#[derive(Serialize)]
struct Agent<'a> {
    config: AgentConfig<'a>,
}

#[derive(Serialize)]
struct AgentConfig<'a> {
    model: &'a str,
}

/// `reward` is null if there is none, which verifiers reads as a missing score.
#[derive(Serialize)]
struct Rewards {
    reward: Option<Score>,
}

#[derive(Serialize)]
struct Score {
    #[serde(serialize_with = "finite")]
    score: Option<f64>,
    weight: f64,
}

#[derive(Serialize)]
struct TraceError<'a> {
    r#type: &'a str,
    message: &'static str,
}

#[derive(Serialize)]
struct Info<'a> {
    rolltap: About<'a>,
}

/// The data for which verifiers has no field.
#[derive(Serialize)]
struct About<'a> {
    group_id: Option<&'a str>,
    group_size: Option<i32>,
    sample_index: i32,
    attempt: i32,
    logprobs_mode: &'a str,
    version_labels: BTreeMap<&'a str, &'a str>,
    branches: Vec<BranchAbout<'a>>,
    calls: Vec<CallAbout<'a>>,
}

#[derive(Serialize)]
struct BranchAbout<'a> {
    branch_index: i32,
    branch_cause: &'a str,
    status: &'a str,
}

#[derive(Serialize)]
struct CallAbout<'a> {
    call_id: &'a str,
    choice_index: i32,
    role: &'a str,
    policy_version: i32,
}

#[derive(Serialize)]
struct ModelCall<'a> {
    node: usize,
    model: &'a str,
    sampling: Sampling,
    finish_reason: Option<&'a str>,
    usage: TraceUsage,
    time: TimeSpan,
}

#[derive(Serialize)]
struct Sampling {
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
}

#[derive(Serialize)]
struct TraceUsage {
    prompt_tokens: usize,
    completion_tokens: usize,
}

/// Seconds since 1970. A start of 0 means unknown in verifiers.
#[derive(Serialize)]
struct TimeSpan {
    start: f64,
    end: f64,
}

impl<'a> Trace<'a> {
    /// Returns the trace. `row` is the first row of the trial.
    pub(super) fn new(trial: &'a Trial, row: &'a RolloutRow, graph: &'a Graph<'a>) -> Self {
        let calls = graph.calls();
        // A failed trial that is only present for its group must not be trained as a trial with this reward.
        let is_kept_for_its_group = !row.reward_valid && !trial.rows.iter().any(is_trained);
        let node = |node| GraphNode { node, advantage: trial.advantage };
        Self {
            version: 1,
            id: &row.trial_id,
            verifiers: Build { version: "0.4.0" },
            task: Task {
                r#type: "Task",
                data: TaskData { id: &row.task_id, name: &row.task_id },
                key: &row.task_id,
            },
            agent: Agent { config: AgentConfig { model: &row.model } },
            nodes: graph.nodes.iter().map(node).collect(),
            rewards: Rewards {
                reward: trial.reward.map(|reward| Score { score: Some(reward), weight: 1.0 }),
            },
            metrics: &row.rewards,
            info: Info { rolltap: About::new(&trial.rows, row, &calls) },
            calls: calls.iter().map(|&(node, turn)| ModelCall::new(node, turn, &row.model)).collect(),
            is_completed: true,
            ok: trial.reward.is_some() && !is_kept_for_its_group,
            // Only `error` is known: a rollout does not record other stop conditions of verifiers.
            stop_condition: row.failure_cause.as_ref().map(|_| "error"),
            errors: row.failure_cause.iter().map(|cause| TraceError { r#type: cause, message: "" }).collect(),
        }
    }
}

impl<'a> About<'a> {
    fn new(rows: &'a [RolloutRow], row: &'a RolloutRow, calls: &[(usize, &BranchTurn<'a>)]) -> Self {
        let labels = rows.iter().flat_map(|row| &row.version_labels);
        let branch = |row: &'a RolloutRow| BranchAbout {
            branch_index: row.branch_index,
            branch_cause: &row.branch_cause,
            status: &row.status,
        };
        let call = |(_, turn): &(usize, &BranchTurn<'a>)| CallAbout {
            call_id: &turn.span.call_id,
            choice_index: turn.span.choice_index,
            role: &turn.span.role,
            policy_version: turn.span.version,
        };
        Self {
            group_id: row.group_id.as_deref(),
            group_size: row.group_size,
            sample_index: row.sample_index,
            attempt: row.attempt,
            logprobs_mode: &row.logprobs_mode,
            version_labels: labels.map(|(version, label)| (version.as_str(), label.as_str())).collect(),
            branches: rows.iter().map(branch).collect(),
            calls: calls.iter().map(call).collect(),
        }
    }
}

impl<'a> ModelCall<'a> {
    fn new(node: usize, turn: &BranchTurn<'a>, model: &'a str) -> Self {
        let span = turn.span;
        // verifiers accepts only these reasons and would reject the record with another one.
        let is_known = |reason: &&str| matches!(*reason, "stop" | "length" | "tool_calls");
        Self {
            node,
            model,
            sampling: Sampling { temperature: span.temperature, top_p: span.top_p, top_k: span.top_k },
            finish_reason: span.finish_reason.as_deref().filter(is_known),
            usage: TraceUsage { prompt_tokens: turn.answer.start, completion_tokens: turn.answer.len() },
            // A row has the end of a call only.
            time: TimeSpan { start: 0.0, end: seconds(span.sampled_at) },
        }
    }
}

fn seconds(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

/// A serialised node. Token lists are written directly from the row.
struct GraphNode<'a> {
    node: &'a Node<'a>,
    advantage: Option<f64>,
}

#[derive(Serialize)]
struct TraceMessage {
    role: &'static str,
    content: Option<&'static str>,
}

impl Serialize for GraphNode<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Node { parent, turn, part } = self.node;
        let ids = self.node.token_ids();
        let mut fields = serializer.serialize_struct("MessageNode", 8)?;
        fields.serialize_field("parent", parent)?;
        match part {
            Part::Context => {
                fields.serialize_field("message", &TraceMessage { role: "user", content: Some("") })?;
                fields.serialize_field("sampled", &false)?;
                fields.serialize_field("timestamp", &seconds(turn.span.sampled_at))?;
                fields.serialize_field("token_ids", ids)?;
                fields.serialize_field("mask", &Each(repeat_n(false, ids.len())))?;
            }
            Part::Answer => {
                let mask = turn.trainable_mask().iter().map(|&trained| trained == 1);
                // Logprobs and advantages have a value per trained token only, and readers spread these over the mask.
                let trained = mask.clone().zip(turn.logprobs()).filter(|&(trained, _)| trained);
                let advantage = self.advantage.map(|advantage| trained.clone().map(move |_| advantage));
                fields.serialize_field("message", &TraceMessage { role: "assistant", content: None })?;
                fields.serialize_field("sampled", &true)?;
                fields.serialize_field("timestamp", &seconds(turn.span.sampled_at))?;
                fields.serialize_field("token_ids", ids)?;
                fields.serialize_field("mask", &Each(mask))?;
                fields.serialize_field("logprobs", &Exact(trained.map(|(_, &logprob)| logprob)))?;
                fields.serialize_field("advantages", &advantage.map(Exact))?;
            }
        }
        fields.end()
    }
}

//! The record of a run as a trajectory in ATIF (Harbor's Agent Trajectory Interchange Format), version 1.8. Empty keys
//! are omitted.

mod recorder;

use serde::Serialize;
use serde_json::{Map, Value};

pub(crate) use recorder::Recorder;

const VERSION: &str = "ATIF-v1.8";

#[derive(Clone, Debug, Serialize)]
struct Trajectory {
    schema_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    trajectory_id: String,
    agent: AgentInfo,
    steps: Vec<TrajectoryStep>,
    final_metrics: FinalMetrics,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subagent_trajectories: Vec<Trajectory>,
}

#[derive(Clone, Debug, Serialize)]
struct AgentInfo {
    name: &'static str,
    version: &'static str,
    model_name: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    extra: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    System,
    User,
    Agent,
}

#[derive(Clone, Debug, Serialize)]
struct TrajectoryStep {
    /// The number of the step from 1, without gaps.
    step_id: usize,
    timestamp: String,
    source: Source,
    message: String,
    #[serde(flatten)]
    of_agent: Option<OfAgent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observation: Option<Observation>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    extra: Map<String, Value>,
}

/// The fields that only a step of the agent has.
#[derive(Clone, Debug, Serialize)]
struct OfAgent {
    #[serde(skip_serializing_if = "Option::is_none")]
    model_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<TrajectoryMetrics>,
    llm_call_count: u32,
}

#[derive(Clone, Debug, Serialize)]
struct ToolCall {
    tool_call_id: String,
    function_name: &'static str,
    arguments: Value,
}

#[derive(Clone, Debug, Serialize)]
struct Observation {
    results: Vec<ObservationResult>,
}

#[derive(Clone, Debug, Default, Serialize)]
struct ObservationResult {
    /// The command with this result. `None` if several commands share one result.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subagent_trajectory_ref: Vec<SubagentRef>,
}

#[derive(Clone, Debug, Serialize)]
struct SubagentRef {
    trajectory_id: String,
}

#[derive(Clone, Debug, Serialize)]
struct TrajectoryMetrics {
    prompt_tokens: u64,
    completion_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct FinalMetrics {
    total_prompt_tokens: u64,
    total_completion_tokens: u64,
    total_cached_tokens: u64,
    total_steps: usize,
}

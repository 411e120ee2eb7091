//! Writes a trajectory during the run, so that it exists however the run ends.

use std::io;
use std::path::Path;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    AgentInfo, FinalMetrics, Observation, ObservationResult, OfAgent, Source, SubagentRef, ToolCall,
    Trajectory, TrajectoryMetrics, TrajectoryStep, VERSION,
};
use crate::answer::{Command, ModelAnswer};
use crate::chat::{Reply, Usage};
use crate::settings::{AgentSettings, TrajectorySettings};
use crate::summarize::{Helper, Purpose};

/// The recorder of one run.
pub(crate) struct Recorder {
    place: TrajectorySettings,
    trajectory: Trajectory,
    handovers: u32,
    /// Whether a write has failed, because a failure is only logged once.
    failed: bool,
}

impl Recorder {
    pub(crate) fn new(place: TrajectorySettings, settings: &AgentSettings) -> Self {
        let mut extra = Map::from_iter([("parser".to_owned(), json!(settings.format))]);
        if let Some(temperature) = settings.temperature {
            extra.insert("temperature".to_owned(), json!(temperature));
        }
        let agent = AgentInfo {
            name: "terminal",
            version: env!("CARGO_PKG_VERSION"),
            model_name: settings.model.clone(),
            extra,
        };
        let trajectory = Trajectory {
            schema_version: VERSION,
            session_id: Some(place.session_id.clone()),
            trajectory_id: place.session_id.clone(),
            agent,
            steps: Vec::new(),
            final_metrics: FinalMetrics::default(),
            subagent_trajectories: Vec::new(),
        };
        Self { place, trajectory, handovers: 0, failed: false }
    }

    /// Records a question that is not the result of an answer.
    pub(crate) fn asked(&mut self, message: &str) {
        self.trajectory.push(Source::User, message.to_owned());
    }

    /// Records the model's answer of a turn. `answer` is `None` if the reply was unreadable.
    pub(crate) fn answered(&mut self, turn: u32, reply: &Reply, answer: Option<&ModelAnswer>) {
        // A raw step has the reply unchanged, and no tool calls that repeat its content.
        let answer = answer.filter(|_| !self.place.raw_content);
        let message = answer.map_or_else(|| reply.content.clone(), thoughts);
        let tool_calls = answer.map(|answer| tool_calls(turn, answer)).unwrap_or_default();
        let step = self.trajectory.push(Source::Agent, message);
        step.of_agent = Some(OfAgent { tool_calls, ..of_agent(reply) });
    }

    /// Records the result of the last answer.
    pub(crate) fn observed(&mut self, content: &str) {
        let Some(step) = self.trajectory.steps.last_mut() else { return };
        let calls = step.of_agent.iter().flat_map(|of_agent| &of_agent.tool_calls);
        let mut commands = calls.filter(|call| call.function_name == BASH_COMMAND);
        let source_call_id = match (commands.next(), commands.next()) {
            // With several commands, the shared observation does not show which command caused it.
            (Some(only), None) => Some(only.tool_call_id.clone()),
            _ => None,
        };
        let result = ObservationResult {
            source_call_id,
            content: Some(content.to_owned()),
            ..ObservationResult::default()
        };
        step.observation = Some(Observation { results: vec![result] });
    }

    /// Records that a shorter conversation replaced this one, with these helper conversations. `dropped` exchanges were
    /// removed before.
    pub(crate) fn handed_over(&mut self, dropped: usize, helpers: &[Helper]) {
        self.handovers += 1;
        let mut references = Vec::new();
        for helper in helpers {
            let trajectory = self.helper_trajectory(helper);
            references.push(SubagentRef { trajectory_id: trajectory.trajectory_id.clone() });
            self.trajectory.subagent_trajectories.push(trajectory);
        }
        let message = "The conversation grew too long, and a shorter one took its place.";
        let step = self.trajectory.push(Source::System, message.to_owned());
        let boundary = json!({"type": "compaction", "boundary": "replace", "dropped_exchanges": dropped});
        step.extra.insert("context_management".to_owned(), boundary);
        if !references.is_empty() {
            let result =
                ObservationResult { subagent_trajectory_ref: references, ..ObservationResult::default() };
            step.observation = Some(Observation { results: vec![result] });
        }
    }

    /// Returns the trajectory of a helper conversation. The messages before its question are not copied, because the
    /// main trajectory has them.
    fn helper_trajectory(&self, helper: &Helper) -> Trajectory {
        let purpose = match helper.purpose {
            Purpose::Summary => "summary",
            Purpose::Questions => "questions",
            Purpose::Answers => "answers",
            Purpose::Brief => "brief",
        };
        let Trajectory { trajectory_id, agent, steps, .. } = &self.trajectory;
        let mut trajectory = Trajectory {
            schema_version: VERSION,
            session_id: None,
            trajectory_id: format!("{trajectory_id}-handover-{}-{purpose}", self.handovers),
            agent: AgentInfo { extra: Map::new(), ..agent.clone() },
            steps: Vec::new(),
            final_metrics: FinalMetrics::default(),
            subagent_trajectories: Vec::new(),
        };
        let asked = trajectory.push(Source::User, helper.asked.clone());
        if matches!(helper.purpose, Purpose::Summary | Purpose::Answers) {
            // A reference instead of a copy of the conversation, which would double the file with each summary.
            let before = json!({"trajectory_id": trajectory_id, "steps": steps.len()});
            asked.extra.insert("conversation_before".to_owned(), before);
        }
        trajectory.push(Source::Agent, helper.reply.content.clone()).of_agent = Some(of_agent(&helper.reply));
        trajectory.total(helper.reply.usage.unwrap_or_default());
        trajectory
    }

    /// Replaces the file atomically: a concurrent reader sees the complete trajectory of the previous turn. `spent` is
    /// the usage of all calls until now.
    pub(crate) async fn write(&mut self, spent: Usage) {
        if self.trajectory.steps.is_empty() {
            return;
        }
        self.trajectory.total(spent);
        let written = match serde_json::to_vec_pretty(&self.trajectory) {
            Ok(text) => replace(&self.place.path, &text).await,
            Err(error) => Err(error.into()),
        };
        // A trajectory is not essential: a failed write must not end the run.
        if let Err(error) = written
            && !std::mem::replace(&mut self.failed, true)
        {
            let path = self.place.path.display();
            tracing::warn!(%path, %error, "the trajectory could not be written");
        }
    }
}

impl Trajectory {
    fn push(&mut self, source: Source, message: String) -> &mut TrajectoryStep {
        let step = TrajectoryStep {
            step_id: self.steps.len() + 1,
            timestamp: format!("{:.6}", Timestamp::now()),
            source,
            message,
            of_agent: None,
            observation: None,
            extra: Map::new(),
        };
        self.steps.push_mut(step)
    }

    fn total(&mut self, spent: Usage) {
        self.final_metrics = FinalMetrics {
            total_prompt_tokens: spent.prompt_tokens,
            total_completion_tokens: spent.completion_tokens,
            total_cached_tokens: spent.cached_tokens,
            total_steps: self.steps.len(),
        };
    }
}

const BASH_COMMAND: &str = "bash_command";

fn thoughts(answer: &ModelAnswer) -> String {
    let parts = [("Analysis", &answer.analysis), ("Plan", &answer.plan)];
    let said = parts.into_iter().filter(|(_, text)| !text.is_empty());
    said.map(|(name, text)| format!("{name}: {text}")).collect::<Vec<_>>().join("\n")
}

/// Returns the keystrokes as tool calls with Harbor's names. They are not real tool calls, but other programs expect
/// this form.
fn tool_calls(turn: u32, answer: &ModelAnswer) -> Vec<ToolCall> {
    let of_command = |(number, command): (usize, &Command)| ToolCall {
        tool_call_id: format!("call_{turn}_{number}"),
        function_name: BASH_COMMAND,
        arguments: json!({"keystrokes": command.keystrokes, "duration": command.wait.as_secs_f64()}),
    };
    let complete = answer.task_complete.then(|| ToolCall {
        tool_call_id: format!("call_{turn}_task_complete"),
        function_name: "mark_task_complete",
        arguments: Value::Object(Map::new()),
    });
    (1..).zip(&answer.commands).map(of_command).chain(complete).collect()
}

fn of_agent(reply: &Reply) -> OfAgent {
    OfAgent {
        model_name: reply.model.clone(),
        reasoning_content: reply.reasoning.clone(),
        tool_calls: Vec::new(),
        metrics: reply.usage.map(|usage| TrajectoryMetrics {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: Some(usage.cached_tokens).filter(|cached| *cached > 0),
        }),
        llm_call_count: 1,
    }
}

async fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    // The rename is atomic only within one file system, so the temporary file is beside the target.
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    tokio::fs::write(&beside, text).await?;
    tokio::fs::rename(&beside, path).await
}

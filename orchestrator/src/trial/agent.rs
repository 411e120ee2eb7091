//! An agent of a job, with its model and its limits.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use crate::agents::{AgentSpec, Skill};
use crate::failure::TimeoutPolicy;
use crate::task::{McpServer, Task};
use crate::trial::TrialExtras;

/// An agent of a job. Each agent gets every task of the job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobAgent {
    /// The agent and its options.
    pub spec: AgentSpec,
    /// The name by which the agent was requested, or the path of the file that declares it.
    pub asked: String,
    /// The agent's environment variables as given, for the record.
    pub env: BTreeMap<String, String>,
    /// MCP servers that the agent gets in addition to those of tasks.
    pub mcp_servers: Vec<McpServer>,
    /// Skills that the agent gets in addition to those of tasks.
    pub skills: Vec<Skill>,
    /// The model's name at the upstream. `None` for the only model that it serves.
    pub model: Option<String>,
    /// Limits that change those of the tasks for this agent.
    pub timeouts: AgentTimeouts,
    /// The limit of trials at once. `None` if only the job's limit holds.
    pub limit: Option<AgentLimit>,
}

/// Time limits in seconds that replace or bound those of a task. Each is optional.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AgentTimeouts {
    /// `override_timeout_sec`: replaces the task's `agent.timeout_sec`.
    pub override_sec: Option<f64>,
    /// `max_timeout_sec`: the upper bound.
    pub max_sec: Option<f64>,
    /// `override_setup_timeout_sec`: the limit of the agent's setup.
    pub override_setup_sec: Option<f64>,
}

/// A limit of trials at once, of one agent or of a group of agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentLimit {
    /// The number of trials at once.
    pub trials: NonZeroUsize,
    /// Agents that name the same group share its limit. `None` for a limit of this agent alone.
    pub group: Option<String>,
}

impl JobAgent {
    /// Returns an agent with default settings.
    pub fn new(spec: AgentSpec, model: Option<String>) -> Self {
        let asked = spec.name().to_owned();
        Self {
            spec,
            asked,
            env: BTreeMap::new(),
            mcp_servers: Vec::new(),
            skills: Vec::new(),
            model,
            timeouts: AgentTimeouts::default(),
            limit: None,
        }
    }

    /// Returns a task as this agent sees it.
    pub(crate) fn sees(&self, task: &Task) -> Task {
        self.adds_to(&TrialExtras::default()).applied_to(task)
    }

    /// Adds the agent's own servers and skills to the job's additions.
    pub(crate) fn adds_to(&self, extras: &TrialExtras) -> TrialExtras {
        let (mcp_servers, skills) = (self.mcp_servers.clone(), self.skills.clone());
        TrialExtras { mcp_servers, skills, ..extras.clone() }
    }

    /// Returns a label that distinguishes the agent from others with another name or model.
    pub(crate) fn label(&self) -> String {
        match &self.model {
            // A `/` separates the parts of a group's id.
            Some(model) => format!("{}__{}", self.spec.name(), model.replace('/', "-")),
            None => self.spec.name().to_owned(),
        }
    }
}

impl AgentTimeouts {
    /// Returns the job's time limits with this agent's changes.
    pub(crate) fn over(self, mut policy: TimeoutPolicy) -> TimeoutPolicy {
        policy.agent.override_sec = self.override_sec.or(policy.agent.override_sec);
        policy.agent.max_sec = self.max_sec.or(policy.agent.max_sec);
        policy.agent_setup.override_sec = self.override_setup_sec.or(policy.agent_setup.override_sec);
        policy
    }
}

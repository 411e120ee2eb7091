//! One of a job's agents: who works, with which model, under which limits.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use crate::agents::{AgentSpec, Skill};
use crate::failure::TimeoutPolicy;
use crate::task::{McpServer, Task};
use crate::trial::TrialExtras;

/// One of a job's agents. Every task of the job is given to each of them.
#[derive(Clone, Debug, PartialEq)]
pub struct JobAgent {
    /// Who works.
    pub spec: AgentSpec,
    /// What it was asked for by: its name, or the file that declares it.
    pub asked: String,
    /// Its environment variables as they were given, for the record.
    pub env: BTreeMap<String, String>,
    /// Tool servers that it is told of besides those of tasks.
    pub mcp_servers: Vec<McpServer>,
    /// What it is taught besides what tasks teach.
    pub skills: Vec<Skill>,
    /// The model as upstream names it; none for the only one that it serves.
    pub model: Option<String>,
    /// What becomes of the tasks' limits where it works.
    pub timeouts: AgentTimeouts,
    /// How many of its trials run at once; none for as many as the job runs.
    pub limit: Option<AgentLimit>,
}

/// Seconds that take the place of a task's, or bound them. Each may be absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AgentTimeouts {
    /// `override_timeout_sec`: instead of the task's `agent.timeout_sec`.
    pub override_sec: Option<f64>,
    /// `max_timeout_sec`: at most this.
    pub max_sec: Option<f64>,
    /// `override_setup_timeout_sec`: for getting ready.
    pub override_setup_sec: Option<f64>,
}

/// A bound on trials at once that one agent has, or several of one group share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentLimit {
    /// Trials at once.
    pub trials: NonZeroUsize,
    /// Agents that name the same group share its limit; none for a limit of its own.
    pub group: Option<String>,
}

impl JobAgent {
    /// An agent with nothing else said of it.
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

    /// A task as it is told of it.
    pub(crate) fn sees(&self, task: &Task) -> Task {
        self.adds_to(&TrialExtras::default()).applied_to(task)
    }

    /// What is added to its tasks, with what it brings itself.
    pub(crate) fn adds_to(&self, extras: &TrialExtras) -> TrialExtras {
        let (mcp_servers, skills) = (self.mcp_servers.clone(), self.skills.clone());
        TrialExtras { mcp_servers, skills, ..extras.clone() }
    }

    /// What tells it from the job's other agents, where their names and models differ.
    pub(crate) fn label(&self) -> String {
        match &self.model {
            Some(model) => format!("{}__{}", self.spec.name(), model.replace('/', "-")),
            None => self.spec.name().to_owned(),
        }
    }
}

impl AgentTimeouts {
    /// The job's policy as it is for this agent.
    pub(crate) fn over(self, mut policy: TimeoutPolicy) -> TimeoutPolicy {
        policy.agent.override_sec = self.override_sec.or(policy.agent.override_sec);
        policy.agent.max_sec = self.max_sec.or(policy.agent.max_sec);
        policy.agent_setup.override_sec = self.override_setup_sec.or(policy.agent_setup.override_sec);
        policy
    }
}

//! One of a job's agents: who works, with which model, under which limits.

use std::num::NonZeroUsize;

use crate::agents::AgentSpec;

/// One of a job's agents. Every task of the job is given to each of them.
#[derive(Clone, Debug, PartialEq)]
pub struct JobAgent {
    /// Who works.
    pub spec: AgentSpec,
    /// The model as upstream names it; none for the only one that it serves.
    pub model: Option<String>,
    /// How many of its trials run at once; none for as many as the job runs.
    pub limit: Option<AgentLimit>,
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
        Self { spec, model, limit: None }
    }

    /// What tells it from the job's other agents, where their names and models differ.
    pub(crate) fn label(&self) -> String {
        match &self.model {
            Some(model) => format!("{}__{}", self.spec.name(), model.replace('/', "-")),
            None => self.spec.name().to_owned(),
        }
    }
}

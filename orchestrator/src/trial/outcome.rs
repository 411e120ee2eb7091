//! What came of a trial.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rolltap_proxy::api::{PutReward, TrialStatus};
use rolltap_rollout::ids::{GroupId, TaskId, TrialId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::TrialPlan;
use crate::agent_reported::Returned;
use crate::failure::{Cause, TrialFailure};
use crate::trial::JobAgent;
use crate::verify::Rewards;

/// What came of a trial.
#[derive(Clone, Debug)]
pub struct TrialOutcome {
    /// The trial.
    pub name: TrialId,
    /// Its task, as the proxy takes it.
    pub task_id: TaskId,
    /// The samples that it is compared with.
    pub group_id: GroupId,
    /// How many there are.
    pub group_size: u32,
    /// Its task's name.
    pub task_name: String,
    /// The dataset that its task counts to.
    pub source: Option<String>,
    /// Which sample of its group.
    pub sample_index: u32,
    /// Which try at this sample, from 0.
    pub attempt: u32,
    /// Who worked.
    pub agent: Arc<JobAgent>,
    /// Whether the proxy knows the trial, so that there may be a rollout of it.
    pub opened: bool,
    /// The proxy's last word on the trial: calls, tokens, branches.
    pub status: Option<TrialStatus>,
    /// The verifier gave a verdict, which may be of no number at all.
    pub judged: bool,
    /// Every number that the verifier gave.
    pub rewards: BTreeMap<String, f64>,
    /// The one number to train on; none (never 0) where there is none.
    pub reward: Option<f64>,
    /// Why the trial failed.
    pub failure: Option<TrialFailure>,
    /// Another attempt at the sample is to follow, in this run of the job or in one that goes on with it, so that the proxy
    /// has no reward yet.
    pub awaits_retry: bool,
    /// Why no other trial of the job could do better now, where that is so.
    pub halts: Option<String>,
    /// Tokens that the agent handed back itself; none where it handed back nothing.
    pub returned: Option<Returned>,
    /// What the agent says about its own run.
    pub agent_metadata: Map<String, Value>,
    /// When the trial began.
    pub started_at: Timestamp,
    /// When all of it was over.
    pub finished_at: Timestamp,
    /// Building and starting the environment.
    pub environment_setup: Option<Timing>,
    /// Getting the agent ready.
    pub agent_setup: Option<Timing>,
    /// The agent's time.
    pub agent_execution: Option<Timing>,
    /// The tests.
    pub verifier: Option<Timing>,
    /// What came of each step that was begun; empty for a task in one go.
    pub steps: Vec<StepOutcome>,
}

/// What came of one step of a task.
#[derive(Clone, Debug)]
pub struct StepOutcome {
    /// The step.
    pub name: String,
    /// What came of it.
    pub round: Round,
}

/// What came of one instruction.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// What the tests gave; none where they did not run, or gave nothing.
    pub verdict: Option<Rewards>,
    /// The first failure.
    pub failure: Option<TrialFailure>,
    /// What the agent says about its own run.
    pub agent_metadata: Map<String, Value>,
    /// The agent's time.
    pub agent_execution: Option<Timing>,
    /// The tests.
    pub verifier: Option<Timing>,
}

/// From when to when a phase lasted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Timing {
    /// The phase began.
    pub started_at: Timestamp,
    /// The phase was over.
    pub finished_at: Timestamp,
}

impl Timing {
    /// A phase that begins now.
    pub(super) fn start() -> Self {
        let now = Timestamp::now();
        Self { started_at: now, finished_at: now }
    }

    /// The phase, over now.
    pub(super) fn finish(self) -> Self {
        Self { finished_at: Timestamp::now(), ..self }
    }
}

impl TrialOutcome {
    /// Whether any of its complete calls can be trained. None where there are none.
    pub(crate) fn is_captured(&self) -> Option<bool> {
        let status = self.status.as_ref().filter(|status| status.calls.complete > 0)?;
        Some(status.empty_calls() < status.calls.complete)
    }

    pub(crate) fn new(plan: &TrialPlan) -> Self {
        let now = Timestamp::now();
        Self {
            name: plan.name.clone(),
            task_id: plan.task_id.clone(),
            group_id: plan.group_id.clone(),
            group_size: plan.group_size,
            task_name: plan.task.name.clone(),
            source: plan.source.clone(),
            sample_index: plan.sample_index,
            attempt: plan.attempt,
            agent: Arc::clone(&plan.agent),
            opened: false,
            status: None,
            judged: false,
            rewards: BTreeMap::new(),
            reward: None,
            failure: None,
            awaits_retry: false,
            halts: None,
            returned: None,
            agent_metadata: Map::new(),
            started_at: now,
            finished_at: now,
            environment_setup: None,
            agent_setup: None,
            agent_execution: None,
            verifier: None,
            steps: Vec::new(),
        }
    }

    /// What the result of an ended trial says. What is not in it is as if it had not been.
    pub(crate) fn recorded(plan: &TrialPlan, result: &Value) -> Self {
        let outcome = Self::new(plan);
        let status: Option<TrialStatus> = at(result, "/rolltap/proxy");
        Self {
            opened: status.is_some(),
            status,
            judged: result.pointer("/verifier_result").is_some_and(Value::is_object),
            rewards: at(result, "/verifier_result/rewards").unwrap_or_default(),
            reward: at(result, "/rolltap/reward"),
            failure: at(result, "/rolltap/failure"),
            awaits_retry: at(result, "/rolltap/awaits_retry").unwrap_or(false),
            returned: at(result, "/rolltap/returned"),
            agent_metadata: at(result, "/agent_result/metadata").unwrap_or_default(),
            started_at: at(result, "/started_at").unwrap_or(outcome.started_at),
            finished_at: at(result, "/finished_at").unwrap_or(outcome.finished_at),
            environment_setup: at(result, "/environment_setup"),
            agent_execution: at(result, "/agent_execution"),
            verifier: at(result, "/verifier"),
            ..outcome
        }
    }

    /// When the agent's time was over, as far as it had any.
    pub(crate) fn agent_finished_at(&self) -> Timestamp {
        let of_steps = || self.steps.iter().rev().find_map(|step| step.round.agent_execution);
        self.agent_execution.or_else(of_steps).map_or(self.started_at, |timing| timing.finished_at)
    }

    /// Takes over what came of a task in one go.
    pub(super) fn take(&mut self, round: Round) {
        let Round { verdict, failure, agent_metadata, agent_execution, verifier } = round;
        self.judged = verdict.is_some();
        let Rewards { rewards, reward } = verdict.unwrap_or_default();
        (self.rewards, self.reward, self.agent_metadata) = (rewards, reward, agent_metadata);
        (self.agent_execution, self.verifier) = (agent_execution, verifier);
        self.failure = self.failure.take().or(failure);
    }

    /// What Harbor keeps as the trial's exception: a step's failure is the step's.
    pub(crate) fn exception(&self) -> Option<&TrialFailure> {
        self.failure.as_ref().filter(|failure| failure.step.is_none())
    }

    /// The outcome of a trial that got no further than this.
    pub(crate) fn failed(self, failure: TrialFailure) -> Self {
        Self { failure: Some(failure), finished_at: Timestamp::now(), ..self }
    }

    /// What the proxy is told at its end.
    pub(crate) fn reward_to_put(&self) -> PutReward {
        PutReward {
            rewards: self.rewards.clone(),
            reward: self.reward,
            valid: Some(self.reward_is_valid()),
            failure_cause: self.failure.as_ref().map(|failure| failure.cause.name().to_owned()),
        }
    }

    /// Whether its job was stopped under it.
    pub fn is_cancelled(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.cause == Cause::Cancelled)
    }

    /// Whether there is a reward and it measures the agent.
    pub fn reward_is_valid(&self) -> bool {
        !self.rewards.is_empty() && self.failure.as_ref().is_none_or(|failure| failure.is_agents_fault)
    }

    /// Whether something other than the agent went wrong.
    pub fn failed_through_no_fault_of_the_agent(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| !failure.is_agents_fault)
    }

    /// From beginning to end.
    pub fn duration(&self) -> Duration {
        self.finished_at.duration_since(self.started_at).try_into().unwrap_or_default()
    }
}

/// A value of a result; none where there is none, or one of another form.
fn at<T: DeserializeOwned>(result: &Value, pointer: &str) -> Option<T> {
    result.pointer(pointer).and_then(|value| serde_json::from_value(value.clone()).ok())
}

//! The result of a trial.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rolltap_proxy::api::{PutReward, TrialStatus};
use rolltap_rollout::ids::{GroupId, TaskId, TrialId};
use rolltap_rollout::rollout::{Reward, RewardRule};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::TrialPlan;
use crate::agent_reported::Returned;
use crate::failure::{Cause, TrialFailure};
use crate::trial::JobAgent;
use crate::verify::Rewards;
use crate::verify::integrity::Suspicions;

/// The result of a trial.
#[derive(Clone, Debug)]
pub struct TrialOutcome {
    /// The trial.
    pub name: TrialId,
    /// Its task's id at the proxy.
    pub task_id: TaskId,
    /// Its group.
    pub group_id: GroupId,
    /// The number of samples in the group.
    pub group_size: u32,
    /// Its task's name.
    pub task_name: String,
    /// The dataset of its task.
    pub source: Option<String>,
    /// The index of its sample in the group.
    pub sample_index: u32,
    /// The number of the attempt at this sample, from 0.
    pub attempt: u32,
    /// The agent.
    pub agent: Arc<JobAgent>,
    /// Whether the proxy has the trial. If so, it may have a rollout.
    pub opened: bool,
    /// The last status from the proxy: calls, tokens, branches.
    pub status: Option<TrialStatus>,
    /// Whether the verifier gave a verdict, which may have no number.
    pub judged: bool,
    /// Every number that the verifier gave.
    pub rewards: BTreeMap<String, f64>,
    /// The number that trains the trial. `None`, never 0, if there is none.
    pub reward: Option<f64>,
    /// The rule that makes this number. `None` for the entry `reward`, or else the only entry.
    pub reward_rule: Option<RewardRule>,
    /// Signs that the agent manipulated its tests or its reward. `None` if the trial was not examined.
    pub suspicious: Option<Suspicions>,
    /// Output and logs of the tests that were too large to be stored whole, each with its limit.
    pub verifier_truncated: Vec<String>,
    /// Why the trial failed.
    pub failure: Option<TrialFailure>,
    /// Whether another attempt at the sample follows, in this run of the job or when it is resumed. The proxy then has
    /// no reward yet.
    pub awaits_retry: bool,
    /// The problem that would affect every other trial of the job as well, if there is one.
    pub halts: Option<String>,
    /// The agent's own record of tokens. `None` if there is no such record.
    pub returned: Option<Returned>,
    /// Metadata from the agent about its run.
    pub agent_metadata: Map<String, Value>,
    /// When the trial began.
    pub started_at: Timestamp,
    /// When the trial ended.
    pub finished_at: Timestamp,
    /// The time of building and starting the environment.
    pub environment_setup: Option<Timing>,
    /// The time of the agent's setup.
    pub agent_setup: Option<Timing>,
    /// The agent's time.
    pub agent_execution: Option<Timing>,
    /// The time of the tests.
    pub verifier: Option<Timing>,
    /// The outcome of each step that began. Empty for a task without steps.
    pub steps: Vec<StepOutcome>,
}

/// The outcome of one step of a task.
#[derive(Clone, Debug)]
pub struct StepOutcome {
    /// The step.
    pub name: String,
    /// Its outcome.
    pub round: Round,
}

/// The outcome of one instruction.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// The result of the tests. `None` if they did not run or gave no result.
    pub verdict: Option<Rewards>,
    /// The first failure.
    pub failure: Option<TrialFailure>,
    /// Metadata from the agent about its run.
    pub agent_metadata: Map<String, Value>,
    /// The agent's time.
    pub agent_execution: Option<Timing>,
    /// The time of the tests.
    pub verifier: Option<Timing>,
}

/// The start and end of a phase.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Timing {
    /// When the phase began.
    pub started_at: Timestamp,
    /// When the phase ended.
    pub finished_at: Timestamp,
}

impl Timing {
    /// Begins a phase now.
    pub(super) fn start() -> Self {
        let now = Timestamp::now();
        Self { started_at: now, finished_at: now }
    }

    /// Ends the phase now.
    pub(super) fn finish(self) -> Self {
        Self { finished_at: Timestamp::now(), ..self }
    }
}

impl TrialOutcome {
    /// Returns whether the trial is suspected of cheating.
    pub(crate) fn is_suspicious(&self) -> bool {
        self.suspicious.as_ref().is_some_and(|found| !found.is_empty())
    }

    /// Returns whether any complete call can be trained. `None` if no call is complete.
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
            reward_rule: plan.reward_rule.clone(),
            suspicious: None,
            verifier_truncated: Vec::new(),
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

    /// Reads the outcome from the result of an ended trial. A missing value gets its default.
    pub(crate) fn recorded(plan: &TrialPlan, result: &Value) -> Self {
        let outcome = Self::new(plan);
        let status: Option<TrialStatus> = at(result, "/rolltap/proxy");
        Self {
            // A status exists only for a trial that was opened at the proxy.
            opened: status.is_some(),
            status,
            judged: result.pointer("/verifier_result").is_some_and(Value::is_object),
            rewards: at(result, "/verifier_result/rewards").unwrap_or_default(),
            reward: at(result, "/rolltap/reward"),
            suspicious: at(result, "/rolltap/suspicious"),
            verifier_truncated: at(result, "/rolltap/verifier_truncated").unwrap_or_default(),
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

    /// Returns when the agent's time ended, or when the trial began if no agent ran.
    pub(crate) fn agent_finished_at(&self) -> Timestamp {
        let of_steps = || self.steps.iter().rev().find_map(|step| step.round.agent_execution);
        self.agent_execution.or_else(of_steps).map_or(self.started_at, |timing| timing.finished_at)
    }

    /// Adopts the round of a task without steps.
    pub(super) fn take(&mut self, round: Round) {
        let Round { verdict, failure, agent_metadata, agent_execution, verifier } = round;
        self.verifier_truncated =
            verdict.as_ref().map(|verdict| verdict.truncated.clone()).unwrap_or_default();
        self.take_verdict(verdict);
        self.agent_metadata = agent_metadata;
        (self.agent_execution, self.verifier) = (agent_execution, verifier);
        // An earlier failure has priority, because later ones usually follow from it.
        self.failure = self.failure.take().or(failure);
    }

    /// Adopts the numbers of the tests, and chooses the number to train on.
    pub(super) fn take_verdict(&mut self, verdict: Option<Rewards>) {
        self.judged = verdict.is_some();
        let rewards = verdict.unwrap_or_default().rewards;
        let Reward { rewards, reward, .. } = Reward::by_rule(rewards, self.reward_rule.as_ref());
        (self.rewards, self.reward) = (rewards, reward);
    }

    /// Returns the failure that Harbor records as the trial's exception. A failure of a step belongs to the step only.
    pub(crate) fn exception(&self) -> Option<&TrialFailure> {
        self.failure.as_ref().filter(|failure| failure.step.is_none())
    }

    /// Returns the outcome of a trial that ends here with a failure.
    pub(crate) fn failed(self, failure: TrialFailure) -> Self {
        Self { failure: Some(failure), finished_at: Timestamp::now(), ..self }
    }

    /// Returns the reward to set at the proxy.
    pub(crate) fn reward_to_put(&self) -> PutReward {
        PutReward {
            rewards: self.rewards.clone(),
            reward: self.reward,
            valid: Some(self.reward_is_valid()),
            failure_cause: self.failure.as_ref().map(|failure| failure.cause.name().to_owned()),
            version: None,
            suspicious: self.suspicious.as_ref().map(Suspicions::reasons),
        }
    }

    /// Returns whether the proxy has the trial's reward.
    pub(crate) fn is_complete_at_proxy(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.completed_at.is_some())
    }

    /// Returns whether the trial ended because its job was stopped.
    pub fn is_cancelled(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.cause == Cause::Cancelled)
    }

    /// Returns whether there is a reward and it measures the agent.
    pub fn reward_is_valid(&self) -> bool {
        is_valid(&self.rewards, self.failure.as_ref())
    }

    /// Returns whether something other than the agent failed.
    pub fn failed_through_no_fault_of_the_agent(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| !failure.is_agents_fault)
    }

    /// Returns the time from the start of the trial to its end.
    pub fn duration(&self) -> Duration {
        self.finished_at.duration_since(self.started_at).try_into().unwrap_or_default()
    }
}

/// Returns whether there is a reward and it measures the agent.
pub(crate) fn is_valid(rewards: &BTreeMap<String, f64>, failure: Option<&TrialFailure>) -> bool {
    !rewards.is_empty() && failure.is_none_or(|failure| failure.is_agents_fault)
}

/// Reads a value of a result. Returns `None` if it is missing or has another type.
fn at<T: DeserializeOwned>(result: &Value, pointer: &str) -> Option<T> {
    result.pointer(pointer).and_then(|value| serde_json::from_value(value.clone()).ok())
}

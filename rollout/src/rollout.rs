//! The rows of a sealed trial with its reward: one row per branch.

mod reward;
mod reward_rule;

use std::collections::{BTreeMap, HashSet};

pub use reward::{Reward, TrialRewards};
pub use reward_rule::{InvalidRewardRule, RewardRule};
use serde::{Deserialize, Serialize};

use crate::call::{Call, CallRole, CallStatus};
use crate::forest::{Branch, Forest, Node};
use crate::ids::{GroupId, TaskId, TrialId};
use crate::origin::Origin;
use crate::roles::{self, roles};
use crate::row::{CallSpan, RolloutRow, SCHEMA_VERSION};
use crate::training::TrainingPolicy;

/// The properties of a trial, apart from its calls and its reward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialFacts {
    /// The trial's name.
    pub trial_id: TrialId,
    /// Harbor's task name.
    pub task_id: TaskId,
    /// The group of samples that a trainer compares.
    pub group_id: Option<GroupId>,
    /// The number of samples in the complete group.
    pub group_size: Option<u32>,
    /// The index of the sample in its group, from 0.
    pub sample_index: u32,
    /// The number of the attempt at this sample, from 0.
    pub attempt: u32,
    /// The agent that worked at the task.
    #[serde(default)]
    pub agent: Option<String>,
    /// The environment in which the agent worked.
    pub environment: Option<String>,
    /// The model that the opener of the trial named.
    pub model: Option<String>,
    /// vLLM's `--logprobs-mode`.
    pub logprobs_mode: String,
    /// The first 16 hexadecimal digits of the SHA-256 of the served model's tokenizer file, if the file is available.
    #[serde(default)]
    pub tokenizer_hash: Option<String>,
    /// The exclusive upper bound of token ids, if known.
    pub vocab_size: Option<u32>,
    /// The roles whose calls are trained.
    #[serde(default)]
    pub training: TrainingPolicy,
}

/// How a branch ended, in the terms that trainers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchStatus {
    /// The last answer ended by itself.
    Completed,
    /// The length limit truncated the last answer.
    Truncated,
    /// The last answer was cut off from outside: the agent disconnected, the trial was sealed, or the server aborted.
    Aborted,
    /// The last call failed.
    Failed,
}

impl BranchStatus {
    /// Every status, for checks.
    pub const ALL: [Self; 4] = [Self::Completed, Self::Truncated, Self::Aborted, Self::Failed];

    /// The name in rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Truncated => "truncated",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
        }
    }

    fn of(node: &Node<'_>) -> Self {
        match (node.call.status, node.choice.finish_reason.as_deref()) {
            // The call's status decides before the finish reason: an incomplete call may bear a finish reason of one of
            // its choices.
            (CallStatus::Failed, _) => Self::Failed,
            (CallStatus::Cancelled | CallStatus::Interrupted, _) | (CallStatus::Complete, Some("abort")) => {
                Self::Aborted
            }
            (CallStatus::Complete, Some("length")) => Self::Truncated,
            (CallStatus::Complete, _) => Self::Completed,
        }
    }
}

/// Returns the rows of a sealed trial in order of branch. A trial without any sampled token has no rows.
pub fn rows<'a>(
    facts: &TrialFacts,
    reward: &Reward,
    calls: impl IntoIterator<Item = &'a Call>,
) -> Vec<RolloutRow> {
    let forest = Forest::build(calls);
    let branches = forest.branches();
    let source = TrialSource { facts, reward, roles: roles(&forest), forest, branches: branches.len() };
    // Shared across rows: the first branch that has a token owns it, so no token is trained twice.
    let mut owned = HashSet::new();
    branches
        .iter()
        .enumerate()
        .filter_map(|(index, branch)| row(&source, index, branch, &mut owned))
        .collect()
}

/// The source of all rows of one trial.
struct TrialSource<'a> {
    facts: &'a TrialFacts,
    reward: &'a Reward,
    forest: Forest<'a>,
    /// The role of each node, by its index in the forest.
    roles: Vec<CallRole>,
    /// The number of branches.
    branches: usize,
}

/// An answer on a branch.
#[derive(Clone, Copy)]
struct Turn<'a> {
    index: usize,
    node: &'a Node<'a>,
    role: CallRole,
}

impl<'a> TrialSource<'a> {
    fn turns(&'a self, branch: &Branch) -> Vec<Turn<'a>> {
        let turn = |index| {
            let node = self.forest.nodes().get(index)?;
            Some(Turn { index, node, role: self.roles.get(index).copied().unwrap_or_default() })
        };
        self.forest.path_to(branch.leaf).into_iter().filter_map(turn).collect()
    }
}

/// Builds the row of one branch. `owned` holds the nodes whose tokens are in the loss mask of a branch with a lower
/// index.
fn row(
    source: &TrialSource<'_>,
    index: usize,
    branch: &Branch,
    owned: &mut HashSet<usize>,
) -> Option<RolloutRow> {
    let TrialSource { facts, reward, .. } = *source;
    let path = source.turns(branch);
    let (first, last) = (path.first()?.node, path.last()?.node);
    let mut tokens = PerToken::of_branch(last);
    for turn in &path {
        tokens.mark_sampled(turn.node, facts.training.trains(turn.role), owned.insert(turn.index));
    }
    // The status of the last call only: an earlier call of the branch was continued, so it had an answer.
    let status = BranchStatus::of(last);
    Some(RolloutRow {
        schema_version: SCHEMA_VERSION.to_owned(),
        trial_id: facts.trial_id.to_string(),
        group_id: facts.group_id.as_ref().map(ToString::to_string),
        group_size: facts.group_size.map(saturating_i32),
        sample_index: saturating_i32(facts.sample_index),
        attempt: saturating_i32(facts.attempt),
        superseded: false,
        task_id: facts.task_id.to_string(),
        environment: facts.environment.clone(),
        branch_index: saturating_i32(index),
        num_branches: saturating_i32(source.branches),
        is_last_branch: index + 1 == source.branches,
        branch_cause: roles::cause_of(branch, &source.roles).to_string(),
        branch_reprefilled: Some(saturating_i32(branch.reprefilled)),
        token_ids: tokens.ids,
        sampled_mask: tokens.sampled,
        trainable_mask: tokens.trainable,
        loss_mask: tokens.loss,
        logprobs: tokens.logprobs,
        token_version: tokens.version,
        version_labels: labels(&path),
        prompt_len: saturating_i32(first.start()),
        reward: reward.reward,
        advantage: None,
        rewards: reward.rewards.clone(),
        reward_valid: reward.valid,
        failure_cause: reward.failure_cause.clone(),
        reward_version: reward.version.as_ref().map(ToString::to_string),
        suspicious: reward.suspicious.clone(),
        is_truncated: status != BranchStatus::Completed,
        stop_reason: last.choice.finish_reason.clone(),
        status: status.as_str().to_owned(),
        model: model_of(last.call, facts),
        tokenizer_hash: facts.tokenizer_hash.clone(),
        vocab_size: facts.vocab_size.map(saturating_i32),
        logprobs_mode: facts.logprobs_mode.clone(),
        has_media: path.iter().any(|turn| turn.node.call.has_media),
        origin: Some(origin(&path).as_str().to_owned()),
        calls: path.iter().map(|turn| span(&source.forest, turn)).collect(),
    })
}

/// The per-token columns of one row during construction.
struct PerToken {
    ids: Vec<i32>,
    sampled: Vec<u8>,
    trainable: Vec<u8>,
    loss: Vec<u8>,
    logprobs: Vec<f32>,
    version: Vec<i32>,
}

impl PerToken {
    fn of_branch(leaf: &Node<'_>) -> Self {
        let tokens = leaf.call.prompt_token_ids.iter().chain(&leaf.choice.token_ids);
        let ids: Vec<_> = tokens.map(|id| id.as_i32()).collect();
        let len = ids.len();
        Self {
            ids,
            sampled: vec![0; len],
            trainable: vec![0; len],
            loss: vec![0; len],
            logprobs: vec![0.0; len],
            version: vec![-1; len],
        }
    }

    fn mark_sampled(&mut self, node: &Node<'_>, is_trained: bool, is_owner: bool) {
        let call_is_trainable = is_trained && node.call.is_trainable() && !node.is_ambiguous;
        let logprobs = node.choice.aligned_logprobs().unwrap_or_default();
        let span = self
            .sampled
            .iter_mut()
            .zip(&mut self.trainable)
            .zip(&mut self.loss)
            .zip(&mut self.logprobs)
            .zip(&mut self.version)
            .take(node.end())
            .skip(node.start())
            .zip(node.call.token_versions(node.choice));
        for (offset, (((((sampled, trainable), loss), logprob), version), sampled_by)) in span.enumerate() {
            let captured = logprobs.get(offset).copied().flatten();
            // A token without a usable logprob stays in the row as sampled and is not trained.
            let is_trainable = call_is_trainable && captured.is_some();
            *sampled = 1;
            *trainable = u8::from(is_trainable);
            *loss = u8::from(is_trainable && is_owner);
            *logprob = captured.map_or(0.0, |logprob| logprob.get());
            *version = sampled_by;
        }
    }
}

fn span(forest: &Forest<'_>, &Turn { node, role, .. }: &Turn<'_>) -> CallSpan {
    let parent = node.parent.and_then(|index| forest.nodes().get(index));
    let sampling = &node.call.sampling;
    CallSpan {
        call_id: node.call.call_id.to_string(),
        choice_index: saturating_i32(node.choice.index),
        parent_call_id: parent.map(|parent| parent.call.call_id.to_string()),
        role: role.as_str().to_owned(),
        model: Some(node.call.served_model()).filter(|model| !model.is_empty()).map(str::to_owned),
        prompt_len: saturating_i32(node.start()),
        start: saturating_i32(node.start()),
        end: saturating_i32(node.end()),
        finish_reason: node.choice.finish_reason.clone(),
        // The first token may have another version than the one at the call's start: the weights can change before it
        // is sampled.
        version: node.call.token_versions(node.choice).next().unwrap_or(node.call.policy_version),
        sampled_at: node.call.ended_at,
        temperature: sampling.temperature,
        top_p: sampling.top_p,
        top_k: sampling.top_k,
        constrained: sampling.constrained,
        sampling: serde_json::Value::Object(sampling.params.clone()).to_string(),
        messages: None,
        tools: None,
    }
}

/// Returns the names of the versions along a branch, by version.
fn labels(path: &[Turn<'_>]) -> BTreeMap<String, String> {
    let labels = path.iter().flat_map(|turn| &turn.node.call.version_labels);
    labels.map(|(version, label)| (version.to_string(), label.clone())).collect()
}

/// Returns `Agent` if any call of the branch is agent-reported, because then the whole row is not the proxy's capture.
fn origin(path: &[Turn<'_>]) -> Origin {
    let is_agents = |turn: &Turn<'_>| turn.node.call.dialect.origin() == Origin::Agent;
    if path.iter().any(is_agents) { Origin::Agent } else { Origin::Captured }
}

/// Returns the model of the call, or the trial's model if the call names none.
fn model_of(call: &Call, facts: &TrialFacts) -> String {
    if call.model.is_empty() { facts.model.clone().unwrap_or_default() } else { call.model.clone() }
}

/// Converts a count or an index. Real values are far below `i32::MAX`, and the checks would find a saturated one.
fn saturating_i32(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;

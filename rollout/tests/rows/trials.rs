//! Valid trials: calls and their rows, built by the rules of `rollout/1` alone. So neither the forest nor the checks
//! are tested against themselves.

pub(crate) mod any;

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use rolltap_rollout::call::{Call, CallRole, CallStatus, Choice, Dialect, Flaw, Sampling};
use rolltap_rollout::ids::{CallId, TrialId};
use rolltap_rollout::row::{CallSpan, RolloutRow, SCHEMA_VERSION};
use rolltap_rollout::token::{Logprob, TokenId};

pub(crate) const VOCAB_SIZE: u32 = 1000;

/// A trial's calls and its rows.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) calls: Vec<Call>,
    pub(crate) rows: Vec<RolloutRow>,
}

/// An answer: its parent and its tokens.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Whether it is another choice of the previous answer's call. Otherwise it has a call of its own.
    pub(crate) is_other_choice: bool,
    /// The index of its parent among the earlier answers, modulo their number.
    pub(crate) parent: Option<usize>,
    /// Prompt tokens after the parent's answer.
    pub(crate) tail: Vec<u32>,
    /// Sampled tokens, and their logprobs if captured.
    pub(crate) sampled: Vec<(u32, Option<f32>)>,
    pub(crate) finish_reason: Option<String>,
    pub(crate) status: CallStatus,
    pub(crate) flaws: Vec<Flaw>,
    /// Its parent is a guess, so its tokens train nothing.
    pub(crate) is_ambiguous: bool,
    pub(crate) version: i32,
    pub(crate) ended_at: Timestamp,
    pub(crate) sampling: Sampling,
    pub(crate) messages: Option<String>,
    pub(crate) model: String,
}

impl Answer {
    /// Returns a complete answer of four tokens, three of them with logprobs, to three tokens of prompt.
    pub(crate) fn new(parent: Option<usize>) -> Self {
        Self {
            is_other_choice: false,
            parent,
            tail: vec![11, 12, 13],
            sampled: vec![(21, Some(-0.5)), (22, Some(-0.0)), (23, Some(-9999.0)), (24, None)],
            finish_reason: Some("stop".to_owned()),
            status: CallStatus::Complete,
            flaws: Vec::new(),
            is_ambiguous: false,
            version: 3,
            ended_at: Timestamp::UNIX_EPOCH,
            sampling: Sampling::default(),
            messages: None,
            model: "policy".to_owned(),
        }
    }
}

/// The facts that all rows of a trial share.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) trial_id: String,
    pub(crate) group: Option<(String, i32)>,
    pub(crate) sample_index: i32,
    pub(crate) attempt: i32,
    pub(crate) superseded: bool,
    pub(crate) task_id: String,
    pub(crate) texts: [Option<String>; 4],
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) reward: Option<f64>,
    pub(crate) advantage: Option<f64>,
    pub(crate) rewards: BTreeMap<String, f64>,
    pub(crate) reward_valid: bool,
    pub(crate) suspicious: Option<Vec<String>>,
    pub(crate) knows_vocab_size: bool,
}

impl Facts {
    pub(crate) fn new(trial_id: &str) -> Self {
        Self {
            trial_id: trial_id.to_owned(),
            group: Some(("group".to_owned(), 8)),
            sample_index: 2,
            attempt: 0,
            superseded: false,
            task_id: "org/task".to_owned(),
            texts: [None, None, None, None],
            labels: BTreeMap::new(),
            reward: Some(1.0),
            advantage: None,
            rewards: BTreeMap::from([("reward".to_owned(), 1.0)]),
            reward_valid: true,
            suspicious: None,
            knows_vocab_size: true,
        }
    }
}

struct Node<'a> {
    answer: &'a Answer,
    parent: Option<usize>,
    prompt: Vec<u32>,
    call_id: String,
    choice_index: u32,
    /// The model of the first answer of the sequence, because a call extends only answers of its own model.
    model: &'a str,
}

impl Node<'_> {
    fn tokens(&self) -> Vec<u32> {
        self.prompt.iter().copied().chain(self.answer.sampled.iter().map(|(id, _)| *id)).collect()
    }

    fn is_trainable(&self) -> bool {
        !self.answer.is_ambiguous
            && self.answer.status == CallStatus::Complete
            && self.answer.flaws.is_empty()
    }
}

/// Builds the trial of these answers.
pub(crate) fn build(facts: &Facts, answers: &[Answer]) -> Trial {
    let nodes = nodes(answers);
    let branches = branches(&nodes);
    let mut owned = HashSet::new();
    let rows = branches.iter().enumerate();
    let rows =
        rows.map(|(index, path)| row(facts, &nodes, path, (index, branches.len()), &mut owned)).collect();
    Trial { calls: calls(facts, &nodes), rows }
}

fn nodes(answers: &[Answer]) -> Vec<Node<'_>> {
    let mut nodes: Vec<Node<'_>> = Vec::new();
    for answer in answers {
        let call_count = nodes.iter().filter(|node| node.choice_index == 0).count();
        let node = match nodes.last() {
            Some(last) if answer.is_other_choice => Node {
                answer,
                parent: last.parent,
                prompt: last.prompt.clone(),
                call_id: last.call_id.clone(),
                choice_index: last.choice_index + 1,
                model: last.model,
            },
            _ => {
                let parent = answer.parent.and_then(|parent| parent.checked_rem(nodes.len()));
                let mut prompt = parent.map(|parent| nodes[parent].tokens()).unwrap_or_default();
                prompt.extend(&answer.tail);
                let model = parent.map_or(answer.model.as_str(), |parent| nodes[parent].model);
                let call_id = format!("call-{call_count:04}");
                Node { answer, parent, prompt, call_id, choice_index: 0, model }
            }
        };
        nodes.push(node);
    }
    nodes
}

/// Returns the path to each answer that no other answer extends.
fn branches(nodes: &[Node<'_>]) -> Vec<Vec<usize>> {
    let leaves = (0..nodes.len()).filter(|&leaf| nodes.iter().all(|node| node.parent != Some(leaf)));
    leaves
        .map(|leaf| {
            let mut path: Vec<_> = std::iter::successors(Some(leaf), |&node| nodes[node].parent).collect();
            path.reverse();
            path
        })
        .collect()
}

fn row(
    facts: &Facts,
    nodes: &[Node<'_>],
    path: &[usize],
    (index, count): (usize, usize),
    owned: &mut HashSet<usize>,
) -> RolloutRow {
    let last = &nodes[*path.last().unwrap()];
    let token_ids: Vec<_> = last.tokens().into_iter().map(|id| id as i32).collect();
    let len = token_ids.len();
    let status = match (last.answer.status, last.answer.finish_reason.as_deref()) {
        (CallStatus::Failed, _) => "failed",
        (CallStatus::Cancelled | CallStatus::Interrupted, _) | (_, Some("abort")) => "aborted",
        (_, Some("length")) => "truncated",
        _ => "completed",
    };
    let mut row = RolloutRow {
        schema_version: SCHEMA_VERSION.to_owned(),
        trial_id: facts.trial_id.clone(),
        group_id: facts.group.as_ref().map(|(name, _)| name.clone()),
        group_size: facts.group.as_ref().map(|(_, size)| facts.sample_index + size),
        sample_index: facts.sample_index,
        attempt: facts.attempt,
        superseded: facts.superseded,
        task_id: facts.task_id.clone(),
        environment: facts.texts[0].clone(),
        branch_index: index as i32,
        num_branches: count as i32,
        is_last_branch: index + 1 == count,
        branch_cause: "fork".to_owned(),
        branch_reprefilled: Some(nodes[path[0]].prompt.len() as i32),
        token_ids,
        sampled_mask: vec![0; len],
        trainable_mask: vec![0; len],
        loss_mask: vec![0; len],
        logprobs: vec![0.0; len],
        token_version: vec![-1; len],
        version_labels: facts.labels.clone(),
        prompt_len: nodes[path[0]].prompt.len() as i32,
        reward: facts.reward,
        advantage: facts.advantage,
        rewards: facts.rewards.clone(),
        reward_valid: facts.reward_valid,
        failure_cause: facts.texts[1].clone(),
        reward_version: facts.texts[2].clone(),
        suspicious: facts.suspicious.clone(),
        is_truncated: status != "completed",
        stop_reason: last.answer.finish_reason.clone(),
        status: status.to_owned(),
        model: last.model.to_owned(),
        tokenizer_hash: facts.texts[2].clone(),
        vocab_size: facts.knows_vocab_size.then_some(VOCAB_SIZE as i32),
        logprobs_mode: facts.texts[3].clone().unwrap_or_default(),
        has_media: facts.superseded,
        origin: Some("captured".to_owned()),
        calls: path.iter().map(|&node| span(nodes, &nodes[node])).collect(),
    };
    for &index in path {
        mark(&mut row, &nodes[index], owned.insert(index));
    }
    row
}

fn mark(row: &mut RolloutRow, node: &Node<'_>, is_owner: bool) {
    for (offset, &(_, logprob)) in node.answer.sampled.iter().enumerate() {
        let at = node.prompt.len() + offset;
        let is_trainable = node.is_trainable() && logprob.is_some();
        row.sampled_mask[at] = 1;
        row.trainable_mask[at] = u8::from(is_trainable);
        row.loss_mask[at] = u8::from(is_trainable && is_owner);
        row.logprobs[at] = logprob.unwrap_or(0.0);
        row.token_version[at] = node.answer.version;
    }
}

fn span(nodes: &[Node<'_>], node: &Node<'_>) -> CallSpan {
    let start = node.prompt.len() as i32;
    let sampling = &node.answer.sampling;
    CallSpan {
        call_id: node.call_id.clone(),
        choice_index: node.choice_index as i32,
        parent_call_id: node.parent.map(|parent| nodes[parent].call_id.clone()),
        role: "main".to_owned(),
        model: Some(node.model.to_owned()).filter(|model| !model.is_empty()),
        prompt_len: start,
        start,
        end: start + node.answer.sampled.len() as i32,
        finish_reason: node.answer.finish_reason.clone(),
        version: node.answer.version,
        sampled_at: node.answer.ended_at,
        temperature: sampling.temperature,
        top_p: sampling.top_p,
        top_k: sampling.top_k,
        constrained: sampling.constrained,
        sampling: serde_json::to_string(&sampling.params).unwrap(),
        messages: node.answer.messages.clone(),
        tools: node.answer.messages.clone(),
    }
}

/// Returns the calls. The choices of a call share the status, version and flaws of its first answer.
fn calls(facts: &Facts, nodes: &[Node<'_>]) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for node in nodes {
        if node.choice_index == 0 {
            calls.push(Call {
                call_id: CallId::new(node.call_id.clone()).unwrap(),
                trial_id: TrialId::new(facts.trial_id.clone()).unwrap(),
                dialect: Dialect::ChatCompletions,
                model: node.model.to_owned(),
                served_model: None,
                status: node.answer.status,
                role: CallRole::Main,
                continuation: None,
                prompt_token_ids: node.prompt.iter().map(|&id| token(id)).collect(),
                choices: Vec::new(),
                sampling: node.answer.sampling.clone(),
                policy_version: node.answer.version,
                straddles_versions: false,
                version_labels: BTreeMap::new(),
                upstream: None,
                has_media: false,
                flaws: node.answer.flaws.clone(),
                http_status: Some(200),
                error: None,
                started_at: node.answer.ended_at,
                first_token_at: None,
                ended_at: node.answer.ended_at,
            });
        }
        let sampled = &node.answer.sampled;
        calls.last_mut().unwrap().choices.push(Choice {
            index: node.choice_index,
            token_ids: sampled.iter().map(|&(id, _)| token(id)).collect(),
            logprobs: sampled
                .iter()
                .map(|(_, logprob)| logprob.map(|value| Logprob::try_from(value).unwrap()))
                .collect(),
            finish_reason: node.answer.finish_reason.clone(),
            stop_reason: None,
            versions: Vec::new(),
        });
    }
    calls
}

fn token(id: u32) -> TokenId {
    TokenId::try_from(id).unwrap()
}

/// Returns a trial with three branches: two answers that share the previous one, and a separate call.
pub(crate) fn example() -> Trial {
    build(
        &Facts::new("trial"),
        &[Answer::new(None), Answer::new(Some(0)), Answer::new(Some(0)), Answer::new(None)],
    )
}

//! The role of each call, as far as the structure of the trial shows it.
//!
//! A role that a rule assigned at admission takes precedence. Without such a rule, the main conversation is the first
//! one, unless that is a single question and answer before longer conversations. Every other conversation is a
//! sub-agent's, with all its later calls. The answer that a compacted conversation begins with has the role of a
//! compaction.

use std::collections::HashMap;

use crate::branch_cause::BranchCause;
use crate::call::{CallRole, CallStatus};
use crate::continuation::{AnswerRef, Continuation};
use crate::forest::{Branch, Forest, Node};
use crate::token::TokenId;

/// Returns the role of each node of the forest, in the order of the nodes.
pub fn roles(forest: &Forest<'_>) -> Vec<CallRole> {
    let nodes = forest.nodes();
    let answers = Answers::of(nodes);
    let mut authors = Vec::new();
    let mut origins = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        let author = begins_after_compaction(node).then(|| author_of_summary(nodes, index)).flatten();
        authors.extend(author);
        origins.push(node.parent.or_else(|| answers.told_parent(node)).or(author));
    }
    let main = start_of_main(nodes, &origins);
    // The owner of each node's work: the main agent or a sub-agent. A node inherits the owner from its origin.
    let mut work: Vec<CallRole> = Vec::with_capacity(nodes.len());
    for (index, (node, origin)) in nodes.iter().zip(origins).enumerate() {
        let is_sub_agent = match origin.and_then(|origin| work.get(origin)) {
            _ if node.call.role == CallRole::SubAgent => true,
            Some(role) => *role == CallRole::SubAgent,
            None => main.is_some_and(|main| {
                let is_skipped = index < main && node.call.role == CallRole::Main;
                is_skipped || (index > main && begins_with(node, BranchCause::SubAgent))
            }),
        };
        work.push(if is_sub_agent { CallRole::SubAgent } else { CallRole::Main });
    }
    let mut roles: Vec<_> = nodes
        .iter()
        .zip(work)
        .map(|(node, work)| if node.call.role == CallRole::Main { work } else { node.call.role })
        .collect();
    // A title stays a title even if its tokens appear in the summary.
    for author in authors {
        if let Some(role) = roles.get_mut(author).filter(|role| **role != CallRole::Title) {
            *role = CallRole::Compaction;
        }
    }
    roles
}

/// Returns the start of the main conversation: the first conversation start to which no rule gave another role. A first
/// call may be a single question with a complete answer, no tool call and no continuation. Then the next conversation
/// with a continuation is the main one, if there is such a conversation. Agents test the model or ask for a plan before
/// they work.
fn start_of_main(nodes: &[Node<'_>], origins: &[Option<usize>]) -> Option<usize> {
    // A continuation of a title or a probe is a conversation start of its own.
    let is_aside = |index: usize| {
        nodes.get(index).is_some_and(|node| matches!(node.call.role, CallRole::Title | CallRole::Probe))
    };
    let is_start = |index: usize| origins.get(index).is_some_and(|origin| origin.is_none_or(is_aside));
    let starts = || {
        let starts = nodes.iter().enumerate().filter(|(index, _)| is_start(*index));
        starts.filter(|(_, node)| node.call.role == CallRole::Main)
    };
    let call_of = |index: usize| nodes.get(index).map(|node| &node.call.call_id);
    // Compares calls rather than nodes: a later call may continue any choice of a call.
    let goes_on = |index: usize| origins.iter().flatten().any(|&origin| call_of(origin) == call_of(index));
    let (first, node) = starts().next()?;
    if goes_on(first) || !ended_by_itself(node) {
        return Some(first);
    }
    let mut others = starts().skip(1);
    let worked = others.find(|(index, node)| begins_with(node, BranchCause::SubAgent) && goes_on(*index));
    Some(worked.map_or(first, |(index, _)| index))
}

/// Whether the answer is complete and has no tool call.
fn ended_by_itself(node: &Node<'_>) -> bool {
    node.call.status == CallStatus::Complete && node.choice.finish_reason.as_deref() == Some("stop")
}

/// Returns the cause of a branch by the roles of the forest's nodes. Calls before the main conversation do not count as
/// a conversation, so the main conversation has the cause `FirstCall`.
pub fn cause_of(branch: &Branch, roles: &[CallRole]) -> BranchCause {
    match (branch.cause, roles.get(branch.start)) {
        (BranchCause::SubAgent, Some(CallRole::Main)) => BranchCause::FirstCall,
        (cause, _) => cause,
    }
}

fn begins_with(node: &Node<'_>, expected: BranchCause) -> bool {
    let is_fresh = |told: &Continuation| matches!(told, Continuation::Fresh { cause } if *cause == expected);
    node.call.continuation.as_ref().is_some_and(is_fresh)
}

fn begins_after_compaction(node: &Node<'_>) -> bool {
    node.parent.is_none() && begins_with(node, BranchCause::Compaction)
}

/// The indices of nodes, by call and choice.
struct Answers<'a>(HashMap<(&'a str, u32), usize>);

impl<'a> Answers<'a> {
    fn of(nodes: &[Node<'a>]) -> Self {
        let name =
            |(index, node): (usize, &Node<'a>)| ((node.call.call_id.as_str(), node.choice.index), index);
        Self(nodes.iter().enumerate().map(name).collect())
    }

    /// Returns the node that the messages continue, for nodes whose ids extend no answer.
    fn told_parent(&self, node: &Node<'_>) -> Option<usize> {
        let AnswerRef { call_id, choice } = node.call.continuation.as_ref()?.parent()?;
        self.0.get(&(call_id.as_str(), *choice)).copied()
    }
}

/// The minimal number of tokens of a summary. Shorter answers may appear in a prompt by chance.
const SHORTEST_SUMMARY: usize = 12;

/// Returns the answer that the conversation of this node begins with: the latest earlier answer with tokens in its
/// prompt. `None` if there is no such answer, because a guess could train the wrong role.
fn author_of_summary(nodes: &[Node<'_>], index: usize) -> Option<usize> {
    let node = nodes.get(index)?;
    let prompt: Vec<_> = node.call.prompt_token_ids.iter().copied().collect();
    (0..index).rev().find(|&other| {
        nodes.get(other).is_some_and(|other| {
            // An answer that ended after this call started cannot be in its prompt.
            let was_known = other.call.ended_at <= node.call.started_at;
            was_known
                && other.call.status == CallStatus::Complete
                && stands_in(&other.choice.token_ids, &prompt)
        })
    })
}

/// Whether a part of the answer is in the prompt. Agents trim answers and wrap them, which changes the tokens at the
/// edges. For this reason the parts are from the second half, where a summary follows the reasoning.
fn stands_in(answer: &[TokenId], prompt: &[TokenId]) -> bool {
    let length = answer.len();
    if length < SHORTEST_SUMMARY {
        return false;
    }
    // Long enough to be no coincidence, and short enough to lie between two edits.
    let width = (length / 4).clamp(4, 16);
    let parts = [4, 5, 6].map(|eighths| length * eighths / 8);
    parts
        .into_iter()
        .filter_map(|start| answer.get(start..start + width))
        .any(|part| prompt.windows(width).any(|window| window == part))
}

#[cfg(test)]
mod tests;

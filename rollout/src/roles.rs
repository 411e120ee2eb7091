//! What each call was for, as far as the trial's structure tells.
//!
//! A rule that spoke when the call came in has the first word. Where none did, the main conversation is the first one that
//! is no mere question and answer before others that go on; another conversation is a sub-agent's, and stays that however it
//! goes on; and the answer that a compacted conversation begins with was written by a compaction.

use std::collections::HashMap;

use crate::branch_cause::BranchCause;
use crate::call::{CallRole, CallStatus};
use crate::continuation::{AnswerRef, Continuation};
use crate::forest::{Branch, Forest, Node};
use crate::token::TokenId;

/// The role of each of the forest's nodes, in their order.
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
    // Whose work each node is: the main agent's or a sub-agent's.
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
    for author in authors {
        if let Some(role) = roles.get_mut(author).filter(|role| **role != CallRole::Title) {
            *role = CallRole::Compaction;
        }
    }
    roles
}

/// Where the main conversation starts: the first that no rule names. Where that is one question with one answer, which asked
/// for no tool and which nothing goes on from, it is the first of another kind that goes on, if there is one: agents ask
/// whether a model answers, or for a plan, before they work.
fn start_of_main(nodes: &[Node<'_>], origins: &[Option<usize>]) -> Option<usize> {
    // What goes on from a title or a probe is no part of it.
    let is_aside = |index: usize| {
        nodes.get(index).is_some_and(|node| matches!(node.call.role, CallRole::Title | CallRole::Probe))
    };
    let is_start = |index: usize| origins.get(index).is_some_and(|origin| origin.is_none_or(is_aside));
    let starts = || {
        let starts = nodes.iter().enumerate().filter(|(index, _)| is_start(*index));
        starts.filter(|(_, node)| node.call.role == CallRole::Main)
    };
    let call_of = |index: usize| nodes.get(index).map(|node| &node.call.call_id);
    let goes_on = |index: usize| origins.iter().flatten().any(|&origin| call_of(origin) == call_of(index));
    let (first, node) = starts().next()?;
    if goes_on(first) || !ended_by_itself(node) {
        return Some(first);
    }
    let mut others = starts().skip(1);
    let worked = others.find(|(index, node)| begins_with(node, BranchCause::SubAgent) && goes_on(*index));
    Some(worked.map_or(first, |(index, _)| index))
}

/// Whether the answer is whole and asked for no tool.
fn ended_by_itself(node: &Node<'_>) -> bool {
    node.call.status == CallStatus::Complete && node.choice.finish_reason.as_deref() == Some("stop")
}

/// Why a branch started, by the roles of the forest's nodes: what came before the main conversation was no conversation of
/// its own account, so that one is the first.
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

/// Nodes by the names of their answers.
struct Answers<'a>(HashMap<(&'a str, u32), usize>);

impl<'a> Answers<'a> {
    fn of(nodes: &[Node<'a>]) -> Self {
        let name =
            |(index, node): (usize, &Node<'a>)| ((node.call.call_id.as_str(), node.choice.index), index);
        Self(nodes.iter().enumerate().map(name).collect())
    }

    /// What the messages go on from, where the ids do not.
    fn told_parent(&self, node: &Node<'_>) -> Option<usize> {
        let AnswerRef { call_id, choice } = node.call.continuation.as_ref()?.parent()?;
        self.0.get(&(call_id.as_str(), *choice)).copied()
    }
}

/// Shorter answers are no summaries, and might stand in a prompt by chance.
const SHORTEST_SUMMARY: usize = 12;

/// Which answer the conversation of this node begins with: the latest before it whose tokens stand in its prompt. None
/// where that does not show: nothing is guessed.
fn author_of_summary(nodes: &[Node<'_>], index: usize) -> Option<usize> {
    let node = nodes.get(index)?;
    let prompt: Vec<_> = node.call.prompt_token_ids.iter().copied().collect();
    (0..index).rev().find(|&other| {
        nodes.get(other).is_some_and(|other| {
            let was_known = other.call.ended_at <= node.call.started_at;
            was_known
                && other.call.status == CallStatus::Complete
                && stands_in(&other.choice.token_ids, &prompt)
        })
    })
}

/// Whether a part of the answer stands in the prompt. Agents cut answers and wrap them, so that the tokens at their
/// edges change; what is looked for is from within its second half, where summaries come after reasoning.
fn stands_in(answer: &[TokenId], prompt: &[TokenId]) -> bool {
    let length = answer.len();
    if length < SHORTEST_SUMMARY {
        return false;
    }
    let width = (length / 4).clamp(4, 16);
    let parts = [4, 5, 6].map(|eighths| length * eighths / 8);
    parts
        .into_iter()
        .filter_map(|start| answer.get(start..start + width))
        .any(|part| prompt.windows(width).any(|window| window == part))
}

#[cfg(test)]
mod tests;

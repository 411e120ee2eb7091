//! The forest that the calls of a trial form, and its branches.
//!
//! A call extends an earlier one of the same model if its prompt begins with that call's prompt and answer, token for
//! token. The longest such call that started before it is its parent. Only recorded ids and times decide, so the order
//! in which the calls are passed in does not matter. If two answers have the same tokens, the data does not show which
//! of the two a later call extends. The earlier one is then its parent, and the node is marked [`Node::is_ambiguous`].
//!
//! Nothing is copied: a node refers to its call, and a branch to its two ends.

mod links;
mod sequence;

use std::collections::HashMap;

use sequence::Sequence;

use crate::branch_cause::BranchCause;
use crate::call::{Call, Choice};
use crate::continuation::Continuation;

/// A sampled answer and its place in the forest. Calls without prompt ids or sampled tokens have no node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node<'a> {
    /// The call that sampled the answer.
    pub call: &'a Call,
    /// The choice of the call.
    pub choice: &'a Choice,
    /// The index of the parent node, always less than the node's own index.
    pub parent: Option<usize>,
    /// Other answers have exactly the tokens of the parent, so the parent is one of several candidates.
    pub is_ambiguous: bool,
    /// The number of prompt tokens that some earlier sequence (prompt and answer) of the trial begins with. An engine
    /// may have these in its prefix cache.
    pub shared: usize,
}

impl<'a> Node<'a> {
    /// The index of the first sampled token in the branch.
    pub fn start(&self) -> usize {
        self.call.prompt_token_ids.len()
    }

    /// One past the index of the last sampled token.
    pub fn end(&self) -> usize {
        self.start() + self.choice.token_ids.len()
    }

    fn sequence(&self) -> Sequence<'a> {
        Sequence::of(self.call, self.choice)
    }
}

/// One contiguous token sequence of a trial: the path from a root to a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The index of the first node of the branch. The nodes before it on the path belong to an earlier branch.
    pub start: usize,
    /// The index of the last node.
    pub leaf: usize,
    /// Why the branch is separate.
    pub cause: BranchCause,
    /// The tokens of the first call's prompt that no earlier sequence of the trial begins with.
    pub reprefilled: usize,
}

/// The linked calls of one trial.
#[derive(Debug)]
pub struct Forest<'a> {
    nodes: Vec<Node<'a>>,
}

impl<'a> Forest<'a> {
    /// Links the calls of one trial. Shared memory of prompts is not compared. The number of comparisons grows with
    /// calls × log(calls).
    pub fn build(calls: impl IntoIterator<Item = &'a Call>) -> Self {
        let mut nodes = nodes_in_order(calls);
        let links = links::links(&nodes);
        for (node, link) in nodes.iter_mut().zip(links) {
            (node.parent, node.is_ambiguous, node.shared) = (link.parent, link.is_ambiguous, link.shared);
        }
        Self { nodes }
    }

    /// Returns every sampled answer, in order of start, then call id, then choice index.
    pub fn nodes(&self) -> &[Node<'a>] {
        &self.nodes
    }

    /// Returns the indices of the nodes from the root to `leaf`, in that order.
    pub fn path_to(&self, leaf: usize) -> Vec<usize> {
        let parent_of = |&index: &usize| self.nodes.get(index).and_then(|node| node.parent);
        let mut path: Vec<_> = std::iter::successors(Some(leaf), parent_of).collect();
        path.reverse();
        path
    }

    /// Returns every branch, in order of its first call. The first call that extends an answer continues its branch,
    /// and each later one starts a new branch.
    pub fn branches(&self) -> Vec<Branch> {
        // The branch that each last answer belongs to so far. An answer leaves the map when a call extends it.
        let mut ended_by: HashMap<usize, usize> = HashMap::new();
        let mut branches: Vec<Branch> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            // Removal gives the branch to the first extension. A later one finds no entry and starts a branch.
            let continued = node.parent.and_then(|parent| ended_by.remove(&parent));
            match continued.and_then(|at| branches.get_mut(at).map(|branch| (at, branch))) {
                Some((at, branch)) => {
                    branch.leaf = index;
                    ended_by.insert(index, at);
                }
                None => {
                    ended_by.insert(index, branches.len());
                    let (cause, reprefilled) = (self.cause_of(index, node), node.start() - node.shared);
                    branches.push(Branch { start: index, leaf: index, cause, reprefilled });
                }
            }
        }
        branches
    }

    /// Determines the cause from the ids if they extend an answer, and otherwise from the messages as compared at
    /// admission.
    fn cause_of(&self, start: usize, node: &Node<'_>) -> BranchCause {
        // Choices of one call are adjacent in the order of nodes.
        let previous = start.checked_sub(1).and_then(|previous| self.nodes.get(previous));
        match previous {
            None => BranchCause::FirstCall,
            Some(previous) if previous.call.call_id == node.call.call_id => BranchCause::OtherChoice,
            Some(_) if node.parent.is_some() => {
                let is_edited = node.call.continuation.as_ref().is_some_and(Continuation::is_edited);
                if is_edited { BranchCause::HistoryEdited } else { BranchCause::Fork }
            }
            Some(_) => {
                let told = node.call.continuation.as_ref().and_then(Continuation::cause);
                // If two calls are concurrent before the first answer, only one is the trial's first call. The cause of
                // the other one is unknown.
                told.filter(|&cause| cause != BranchCause::FirstCall).unwrap_or(BranchCause::NoSharedPrefix)
            }
        }
    }
}

fn nodes_in_order<'a>(calls: impl IntoIterator<Item = &'a Call>) -> Vec<Node<'a>> {
    let mut nodes: Vec<_> = calls
        .into_iter()
        .filter(|call| !call.prompt_token_ids.is_empty())
        .flat_map(|call| call.choices.iter().map(move |choice| (call, choice)))
        .filter(|(_, choice)| !choice.token_ids.is_empty())
        .map(|(call, choice)| Node { call, choice, parent: None, is_ambiguous: false, shared: 0 })
        // The order is total, so equal timestamps cannot change the forest between two builds.
        .collect();
    nodes.sort_by(|a, b| order_key(a).cmp(&order_key(b)));
    nodes
}

fn order_key<'a>(node: &Node<'a>) -> (jiff::Timestamp, &'a str, u32) {
    (node.call.started_at, node.call.call_id.as_str(), node.choice.index)
}

#[cfg(test)]
pub(crate) mod tests;

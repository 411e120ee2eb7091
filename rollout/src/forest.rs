//! How the calls of a trial hang together: the forest, and its branches.
//!
//! A call extends another where its prompt begins with that one's prompt and answer, token for token; of the calls that
//! were asked for before it the deepest such one is its parent. Recorded ids and times alone decide, so the same set of
//! calls gives the same forest whatever the order they are handed in. Where two answers are the same tokens, nobody can
//! tell which one a later call extends: it hangs on the earlier one and is marked [`Node::is_ambiguous`].
//!
//! Nothing is copied: a node points to its call, and a branch to its two ends.

mod links;
mod sequence;

use std::collections::HashMap;

use sequence::Sequence;

use crate::branch_cause::BranchCause;
use crate::call::{Call, Choice};
use crate::continuation::Continuation;

/// A sampled answer and its place in the forest. Calls without prompt ids or sampled tokens have none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node<'a> {
    /// The call that sampled.
    pub call: &'a Call,
    /// Which of its choices.
    pub choice: &'a Choice,
    /// Index of the node that this one extends; always a smaller one than its own.
    pub parent: Option<usize>,
    /// Other answers have exactly the tokens of the parent, so the parentage is a guess.
    pub is_ambiguous: bool,
    /// How many tokens of the prompt some earlier answer of the trial, with its prompt, begins with: those that an
    /// engine could know.
    pub shared: usize,
}

impl<'a> Node<'a> {
    /// Index of the first sampled token in the branch.
    pub fn start(&self) -> usize {
        self.call.prompt_token_ids.len()
    }

    /// One past the last sampled token.
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
    /// Index of the node that it starts with: what comes before it on the path is of an earlier branch.
    pub start: usize,
    /// Index of its last node.
    pub leaf: usize,
    /// Why it is a branch of its own.
    pub cause: BranchCause,
    /// What that cost: tokens of the first call's prompt that no earlier sequence of the trial began with.
    pub reprefilled: usize,
}

/// The calls of one trial, linked.
#[derive(Debug)]
pub struct Forest<'a> {
    nodes: Vec<Node<'a>>,
}

impl<'a> Forest<'a> {
    /// Links the calls of one trial. Prompts that share memory are compared where they do not share it; the number of
    /// comparisons grows with calls × log(calls).
    pub fn build(calls: impl IntoIterator<Item = &'a Call>) -> Self {
        let mut nodes = nodes_in_order(calls);
        let links = links::links(&nodes);
        for (node, link) in nodes.iter_mut().zip(links) {
            (node.parent, node.is_ambiguous, node.shared) = (link.parent, link.is_ambiguous, link.shared);
        }
        Self { nodes }
    }

    /// Every sampled answer, in order of start (then call id, then choice index).
    pub fn nodes(&self) -> &[Node<'a>] {
        &self.nodes
    }

    /// The nodes from the root to this one, in that order.
    pub fn path_to(&self, leaf: usize) -> Vec<usize> {
        let parent_of = |&index: &usize| self.nodes.get(index).and_then(|node| node.parent);
        let mut path: Vec<_> = std::iter::successors(Some(leaf), parent_of).collect();
        path.reverse();
        path
    }

    /// Every branch, in order of the call it starts with. The first to extend an answer continues its branch, each
    /// later one starts another.
    pub fn branches(&self) -> Vec<Branch> {
        // For each answer that ends a branch so far, which branch.
        let mut ended_by: HashMap<usize, usize> = HashMap::new();
        let mut branches: Vec<Branch> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
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

    /// Structure wins where ids go on; where they do not, what was found when the call came in.
    fn cause_of(&self, start: usize, node: &Node<'_>) -> BranchCause {
        // Choices of one call stand next to each other.
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
                // Of two calls that came in at once before any was answered, one is the first.
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
        .collect();
    nodes.sort_by(|a, b| order_key(a).cmp(&order_key(b)));
    nodes
}

fn order_key<'a>(node: &Node<'a>) -> (jiff::Timestamp, &'a str, u32) {
    (node.call.started_at, node.call.call_id.as_str(), node.choice.index)
}

#[cfg(test)]
pub(crate) mod tests;

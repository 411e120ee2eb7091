//! How the calls of a trial hang together: the forest, and its branches.
//!
//! A call extends another where its prompt begins with that one's prompt and answer, token for token; the deepest
//! such call is its parent. Recorded ids alone decide, so the same set of calls gives the same forest whatever the
//! order they are handed in. Where two answers are the same tokens, nobody can tell which one a later call extends:
//! it hangs on the earlier one and is marked [`Node::is_ambiguous`].

use std::collections::{HashMap, HashSet};

use crate::branch_cause::BranchCause;
use crate::call::{Call, Choice};
use crate::token::TokenId;

/// A sampled answer and its place in the forest. Calls without prompt ids or sampled tokens have none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node<'a> {
    /// The call that sampled.
    pub call: &'a Call,
    /// Which of its choices.
    pub choice: &'a Choice,
    /// Index of the node that this one extends.
    pub parent: Option<usize>,
    /// Other answers have exactly the tokens of the parent, so the parentage is a guess.
    pub is_ambiguous: bool,
}

impl Node<'_> {
    /// Index of the first sampled token in the branch.
    pub fn start(&self) -> usize {
        self.call.prompt_token_ids.len()
    }

    /// One past the last sampled token.
    pub fn end(&self) -> usize {
        self.start() + self.choice.token_ids.len()
    }

    fn tokens(&self) -> impl Iterator<Item = TokenId> + '_ {
        self.call.prompt_token_ids.iter().chain(&self.choice.token_ids).copied()
    }
}

/// One contiguous token sequence of a trial: the path from a root to a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Nodes from the root to the leaf, as indices into [`Forest::nodes`].
    pub path: Vec<usize>,
    /// Why it is a branch of its own.
    pub cause: BranchCause,
}

/// The calls of one trial, linked.
#[derive(Debug)]
pub struct Forest<'a> {
    nodes: Vec<Node<'a>>,
}

impl<'a> Forest<'a> {
    /// Links the calls of one trial. Cost is linear in their tokens.
    pub fn build(calls: impl IntoIterator<Item = &'a Call>) -> Self {
        let mut nodes = nodes_in_order(calls);
        let answers = AnswerIndex::new(&nodes);
        let parents: Vec<_> = nodes.iter().map(|node| answers.deepest_prefix_of(node, &nodes)).collect();
        for (node, found) in nodes.iter_mut().zip(parents) {
            node.parent = found.parent;
            node.is_ambiguous = found.is_ambiguous;
        }
        Self { nodes }
    }

    /// Every sampled answer, in order of start (then call id, then choice index).
    pub fn nodes(&self) -> &[Node<'a>] {
        &self.nodes
    }

    /// Every branch, in order of the call it starts with. The first to extend an answer continues its branch, each
    /// later one starts another.
    pub fn branches(&self) -> Vec<Branch> {
        let mut continued_by: HashMap<usize, usize> = HashMap::new();
        let mut starts = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            match node.parent {
                Some(parent) if !continued_by.contains_key(&parent) => {
                    continued_by.insert(parent, index);
                }
                _ => starts.push(index),
            }
        }
        let mut seen_calls = HashSet::new();
        starts
            .into_iter()
            .enumerate()
            .map(|(position, start)| {
                let cause = self.cause_of(start, position == 0, &seen_calls);
                let path = self.path_through(start, &continued_by);
                seen_calls.extend(path.iter().filter_map(|&i| self.call_of(i)));
                Branch { path, cause }
            })
            .collect()
    }

    fn cause_of(&self, start: usize, is_first: bool, seen_calls: &HashSet<&str>) -> BranchCause {
        let is_other_choice = self.call_of(start).is_some_and(|call| seen_calls.contains(call));
        let has_parent = self.nodes.get(start).is_some_and(|node| node.parent.is_some());
        match (is_first, is_other_choice, has_parent) {
            (true, ..) => BranchCause::FirstCall,
            (_, true, _) => BranchCause::OtherChoice,
            (_, _, true) => BranchCause::Fork,
            _ => self.told_cause(start).unwrap_or(BranchCause::NoSharedPrefix),
        }
    }

    /// What was found when the call came in.
    fn told_cause(&self, start: usize) -> Option<BranchCause> {
        self.nodes.get(start)?.call.continuation.as_ref()?.cause()
    }

    fn call_of(&self, index: usize) -> Option<&'a str> {
        self.nodes.get(index).map(|node| node.call.call_id.as_str())
    }

    fn path_through(&self, start: usize, continued_by: &HashMap<usize, usize>) -> Vec<usize> {
        let parent_of = |&index: &usize| self.nodes.get(index).and_then(|node| node.parent);
        let mut path: Vec<_> = std::iter::successors(Some(start), parent_of).collect();
        path.reverse();
        path.extend(std::iter::successors(continued_by.get(&start).copied(), |i| {
            continued_by.get(i).copied()
        }));
        path
    }
}

fn nodes_in_order<'a>(calls: impl IntoIterator<Item = &'a Call>) -> Vec<Node<'a>> {
    let mut nodes: Vec<_> = calls
        .into_iter()
        .filter(|call| !call.prompt_token_ids.is_empty())
        .flat_map(|call| call.choices.iter().map(move |choice| (call, choice)))
        .filter(|(_, choice)| !choice.token_ids.is_empty())
        .map(|(call, choice)| Node { call, choice, parent: None, is_ambiguous: false })
        .collect();
    nodes.sort_by(|a, b| order_key(a).cmp(&order_key(b)));
    nodes
}

fn order_key<'a>(node: &Node<'a>) -> (jiff::Timestamp, &'a str, u32) {
    (node.call.started_at, node.call.call_id.as_str(), node.choice.index)
}

#[derive(Default)]
struct Found {
    parent: Option<usize>,
    is_ambiguous: bool,
}

/// Every answer's whole token sequence by length and hash, so that one pass over a prompt finds all of its prefixes.
struct AnswerIndex {
    by_length_and_hash: HashMap<(usize, u64), Vec<usize>>,
    lengths: HashSet<usize>,
}

impl AnswerIndex {
    fn new(nodes: &[Node<'_>]) -> Self {
        let mut by_length_and_hash: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            let hash = node.tokens().fold(PrefixHash::default(), PrefixHash::then);
            by_length_and_hash.entry((node.end(), hash.0)).or_default().push(index);
        }
        let lengths = by_length_and_hash.keys().map(|&(length, _)| length).collect();
        Self { by_length_and_hash, lengths }
    }

    fn deepest_prefix_of(&self, child: &Node<'_>, nodes: &[Node<'_>]) -> Found {
        let mut hash = PrefixHash::default();
        let mut found = Found::default();
        for (position, &token) in child.call.prompt_token_ids.iter().enumerate() {
            hash = hash.then(token);
            let length = position + 1;
            if !self.lengths.contains(&length) {
                continue;
            }
            let Some(candidates) = self.by_length_and_hash.get(&(length, hash.0)) else { continue };
            // A hash can lie; the tokens cannot.
            let mut equal = candidates.iter().copied().filter(|&i| {
                nodes.get(i).is_some_and(|node| {
                    node.tokens().eq(child.call.prompt_token_ids.iter().take(length).copied())
                })
            });
            if let Some(parent) = equal.next() {
                found = Found { parent: Some(parent), is_ambiguous: equal.next().is_some() };
            }
        }
        found
    }
}

/// A running hash of a token sequence (FNV-1a over whole ids): the hash of every prefix on the way.
#[derive(Clone, Copy)]
struct PrefixHash(u64);

impl Default for PrefixHash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl PrefixHash {
    fn then(self, token: TokenId) -> Self {
        Self((self.0 ^ u64::from(u32::from(token))).wrapping_mul(0x0000_0100_0000_01b3))
    }
}

#[cfg(test)]
pub(crate) mod tests;

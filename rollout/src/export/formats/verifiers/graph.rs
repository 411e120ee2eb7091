//! Converts the rows of a trial into a graph of nodes, each with the tokens that it adds.

use std::collections::HashMap;

use crate::export::exporter::ExportError;
use crate::export::shared::lines::refused;
use crate::export::shared::turn::{BranchTurn, turns};
use crate::row::RolloutRow;

/// A node and its predecessor.
#[derive(Debug)]
pub(super) struct Node<'a> {
    /// The index of the previous node, or `None` for a root.
    pub(super) parent: Option<usize>,
    pub(super) turn: BranchTurn<'a>,
    pub(super) part: Part,
}

/// The part of a call in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The tokens that the conversation gained before the answer.
    Context,
    /// The sampled tokens.
    Answer,
}

impl<'a> Node<'a> {
    pub(super) fn token_ids(&self) -> &'a [i32] {
        match self.part {
            Part::Context => self.turn.context_ids(),
            Part::Answer => self.turn.answer_ids(),
        }
    }
}

/// All branches of a trial. The leaves are in the order of the rows.
#[derive(Debug, Default)]
pub(super) struct Graph<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    /// By the previous node and the call.
    contexts: HashMap<(Option<usize>, &'a str), usize>,
    /// By call and choice index.
    answers: HashMap<(&'a str, i32), usize>,
}

impl<'a> Graph<'a> {
    /// # Errors
    /// Spans are not in order, or two rows disagree about the prompt or the answer of a call.
    pub(super) fn of(rows: &'a [RolloutRow]) -> Result<Self, ExportError> {
        let mut graph = Self::default();
        for row in rows {
            let mut parent = None;
            for turn in turns(row)? {
                parent = graph.add(parent, turn, row)?;
            }
        }
        Ok(graph)
    }

    /// Adds a turn. Returns the node of its answer.
    fn add(
        &mut self,
        before: Option<usize>,
        turn: BranchTurn<'a>,
        row: &RolloutRow,
    ) -> Result<Option<usize>, ExportError> {
        let call_id = turn.span.call_id.as_str();
        let mut parent = before;
        // A root exists even for an empty prompt, because a branch of a trace begins with a prompt.
        if before.is_none() || !turn.context.is_empty() {
            let known = self.contexts.get(&(before, call_id)).copied();
            let index = self.take(known, Node { parent, turn: turn.clone(), part: Part::Context }, row)?;
            self.contexts.insert((before, call_id), index);
            parent = Some(index);
        }
        let key = (call_id, turn.span.choice_index);
        let known = self.answers.get(&key).copied();
        let index = self.take(known, Node { parent, turn, part: Part::Answer }, row)?;
        self.answers.insert(key, index);
        Ok(Some(index))
    }

    /// Returns the existing node, or adds a new one.
    fn take(&mut self, known: Option<usize>, node: Node<'a>, row: &RolloutRow) -> Result<usize, ExportError> {
        let Some((index, there)) = known.and_then(|index| Some((index, self.nodes.get(index)?))) else {
            self.nodes.push(node);
            return Ok(self.nodes.len() - 1);
        };
        // Two rows that disagree about a call would merge into a branch that never existed.
        let is_same = there.parent == node.parent
            && there.token_ids() == node.token_ids()
            && there.turn.trainable_mask() == node.turn.trainable_mask();
        if is_same {
            return Ok(index);
        }
        let call_id = &node.turn.span.call_id;
        Err(refused(
            row,
            format!("call {call_id} differs from the same call in an earlier branch of the trial"),
        ))
    }

    pub(super) fn turns(&self) -> usize {
        self.answers.len()
    }

    /// Returns the number of calls with tokens of several policy versions.
    pub(super) fn straddling(&self) -> usize {
        let straddles = |versions: &[i32]| versions.windows(2).any(|pair| pair.first() != pair.last());
        let answers = self.nodes.iter().filter(|node| node.part == Part::Answer);
        answers.filter(|node| straddles(node.turn.versions())).count()
    }

    /// Returns the indices of answers in order of time.
    pub(super) fn calls(&self) -> Vec<(usize, &BranchTurn<'a>)> {
        let answers = self.nodes.iter().enumerate().filter(|(_, node)| node.part == Part::Answer);
        let mut calls: Vec<_> = answers.map(|(index, node)| (index, &node.turn)).collect();
        // A stable sort: calls that ended at the same time remain in the order of the branches.
        calls.sort_by_key(|(_, turn)| turn.span.sampled_at);
        calls
    }
}

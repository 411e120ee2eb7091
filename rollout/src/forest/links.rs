//! Finds the answer that each call extends, and the part of its prompt that earlier sequences have. A call extends only
//! an answer of its own model. Sequences of two adapters of one base model begin with the same tokens, but belong to
//! different policies.
//!
//! All sequences are sorted by their tokens. Every prefix of a sequence then precedes it, and the sequence with the
//! longest common prefix is adjacent. This avoids the comparison of every pair.

use super::Node;
use super::sequence::Sequence;

/// The link of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// The answer that the node extends.
    pub(super) parent: Option<usize>,
    /// Whether further answers that started before the node have exactly the tokens of the parent.
    pub(super) is_ambiguous: bool,
    /// The number of leading prompt tokens that an earlier sequence begins with too.
    pub(super) shared: usize,
}

/// Links nodes that are in order of time.
pub(super) fn links(nodes: &[Node<'_>]) -> Vec<Link> {
    let sorted = Sorted::new(nodes);
    let mut links = vec![Link::default(); nodes.len()];
    sorted.link_parents(nodes, &mut links);
    sorted.measure_shared(nodes, &mut links);
    links
}

/// The nodes in order of their tokens. Nodes with equal tokens are in order of time.
struct Sorted {
    order: Vec<usize>,
    /// The number of leading tokens that each node shares with the one before it.
    shared_with_previous: Vec<usize>,
}

/// Nodes with the same tokens.
struct Alike {
    tokens: usize,
    nodes: Vec<usize>,
}

impl Sorted {
    fn new(nodes: &[Node<'_>]) -> Self {
        let mut sequences: Vec<_> = nodes.iter().map(Node::sequence).enumerate().collect();
        sequences.sort_by(|(i, a), (j, b)| a.cmp(b).then(i.cmp(j)));
        let shared = |pair: &[(usize, Sequence<'_>)]| match pair {
            [(_, a), (_, b)] => a.common_prefix(b),
            _ => 0,
        };
        let shared_with_previous = std::iter::once(0).chain(sequences.windows(2).map(shared)).collect();
        Self { order: sequences.into_iter().map(|(index, _)| index).collect(), shared_with_previous }
    }

    /// Finds the parents. Walks along the order with a stack of all sequences that are prefixes of the current one.
    fn link_parents(&self, nodes: &[Node<'_>], links: &mut [Link]) {
        let mut beginnings: Vec<Alike> = Vec::new();
        for (&index, &shared) in self.order.iter().zip(&self.shared_with_previous) {
            let (Some(node), Some(link)) = (nodes.get(index), links.get_mut(index)) else { continue };
            // A stacked sequence that is longer than the common prefix is no prefix of this or any later sequence.
            while beginnings.pop_if(|alike| alike.tokens > shared).is_some() {}
            (link.parent, link.is_ambiguous) = deepest(&beginnings, nodes, index, node.start());
            match beginnings.last_mut().filter(|alike| alike.tokens == node.end()) {
                Some(alike) => alike.nodes.push(index),
                None => beginnings.push(Alike { tokens: node.end(), nodes: vec![index] }),
            }
        }
    }

    /// Measures the shared prefixes. Removes the nodes one after the other, the latest first. The remaining neighbours
    /// of a node are then earlier than it, and no earlier node has a longer common prefix.
    fn measure_shared(&self, nodes: &[Node<'_>], links: &mut [Link]) {
        let mut row = Neighbours::new(self, nodes.len());
        for (index, (node, link)) in nodes.iter().zip(links).enumerate().rev() {
            link.shared = row.take_out(index).min(node.start());
        }
    }
}

/// Returns the longest prefix that fits into the prompt, among nodes of the same model that started before `index`, and
/// whether several answers qualify.
fn deepest(beginnings: &[Alike], nodes: &[Node<'_>], index: usize, prompt: usize) -> (Option<usize>, bool) {
    let model = |index: usize| nodes.get(index).map(|node| node.call.served_model());
    let fitting = beginnings.iter().rev().filter(|alike| alike.tokens <= prompt);
    for alike in fitting {
        // The sort puts nodes with equal tokens in order of time.
        let earlier = alike.nodes.iter().copied().take_while(|&other| other < index);
        let mut earlier = earlier.filter(|&other| model(other) == model(index));
        if let Some(parent) = earlier.next() {
            return (Some(parent), earlier.next().is_some());
        }
    }
    (None, false)
}

/// A list of adjacent nodes, with the number of tokens that neighbours share.
struct Neighbours {
    nodes: Vec<Neighbour>,
}

#[derive(Clone, Copy, Default)]
struct Neighbour {
    previous: Option<usize>,
    next: Option<usize>,
    /// The number of tokens shared with `previous`.
    shared: usize,
}

impl Neighbours {
    fn new(sorted: &Sorted, count: usize) -> Self {
        let mut nodes = vec![Neighbour::default(); count];
        let nexts = sorted.order.iter().skip(1).copied().map(Some).chain([None]);
        let mut previous = None;
        for ((&index, &shared), next) in sorted.order.iter().zip(&sorted.shared_with_previous).zip(nexts) {
            if let Some(node) = nodes.get_mut(index) {
                *node = Neighbour { previous, next, shared };
            }
            previous = Some(index);
        }
        Self { nodes }
    }

    /// Removes a node. Returns the number of tokens that it shares with its closest neighbour.
    fn take_out(&mut self, index: usize) -> usize {
        let node = self.nodes.get(index).copied().unwrap_or_default();
        if let Some(previous) = node.previous.and_then(|previous| self.nodes.get_mut(previous)) {
            previous.next = node.next;
        }
        let Some(next) = node.next.and_then(|next| self.nodes.get_mut(next)) else { return node.shared };
        let most = node.shared.max(next.shared);
        next.previous = node.previous;
        // The common prefix of the two new neighbours, as in any sorted list.
        next.shared = node.shared.min(next.shared);
        most
    }
}

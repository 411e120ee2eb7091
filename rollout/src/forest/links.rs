//! Which answer each call extends, and how much of its prompt had been there before. A call extends only an answer of its own
//! model: what adapters of one base sample begins with the same tokens, and is of another policy.
//!
//! All answers are put in the order of their tokens. Answers that one begins with then stand before it, and what it has
//! most in common with stands right beside it, so that nothing needs to be compared with everything.

use super::Node;
use super::sequence::Sequence;

/// What is found of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// The answer that it extends.
    pub(super) parent: Option<usize>,
    /// Further answers, asked for before it was, have exactly the tokens of the parent.
    pub(super) is_ambiguous: bool,
    /// How many tokens of its prompt an earlier answer's tokens begin with.
    pub(super) shared: usize,
}

/// Links nodes that stand in order of time.
pub(super) fn links(nodes: &[Node<'_>]) -> Vec<Link> {
    let sorted = Sorted::new(nodes);
    let mut links = vec![Link::default(); nodes.len()];
    sorted.link_parents(nodes, &mut links);
    sorted.measure_shared(nodes, &mut links);
    links
}

/// The nodes in order of their tokens, equal ones in order of time.
struct Sorted {
    order: Vec<usize>,
    /// How many tokens each has in common with the one before it.
    shared_with_previous: Vec<usize>,
}

/// Nodes of the same tokens.
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

    /// Walks along the order with all answers at hand that the current one begins with.
    fn link_parents(&self, nodes: &[Node<'_>], links: &mut [Link]) {
        let mut beginnings: Vec<Alike> = Vec::new();
        for (&index, &shared) in self.order.iter().zip(&self.shared_with_previous) {
            let (Some(node), Some(link)) = (nodes.get(index), links.get_mut(index)) else { continue };
            while beginnings.pop_if(|alike| alike.tokens > shared).is_some() {}
            (link.parent, link.is_ambiguous) = deepest(&beginnings, nodes, index, node.start());
            match beginnings.last_mut().filter(|alike| alike.tokens == node.end()) {
                Some(alike) => alike.nodes.push(index),
                None => beginnings.push(Alike { tokens: node.end(), nodes: vec![index] }),
            }
        }
    }

    /// Takes the nodes out one after the other, the latest first: what then stands beside a node is earlier than it, and
    /// of all that is earlier nothing has more in common with it.
    fn measure_shared(&self, nodes: &[Node<'_>], links: &mut [Link]) {
        let mut row = Neighbours::new(self, nodes.len());
        for (index, (node, link)) in nodes.iter().zip(links).enumerate().rev() {
            link.shared = row.take_out(index).min(node.start());
        }
    }
}

/// The longest of these beginnings that fits into a prompt, of those of the same model that were asked for before it; and
/// whether there are several such answers.
fn deepest(beginnings: &[Alike], nodes: &[Node<'_>], index: usize, prompt: usize) -> (Option<usize>, bool) {
    let model = |index: usize| nodes.get(index).map(|node| node.call.served_model());
    let fitting = beginnings.iter().rev().filter(|alike| alike.tokens <= prompt);
    for alike in fitting {
        // They are in order of time.
        let earlier = alike.nodes.iter().copied().take_while(|&other| other < index);
        let mut earlier = earlier.filter(|&other| model(other) == model(index));
        if let Some(parent) = earlier.next() {
            return (Some(parent), earlier.next().is_some());
        }
    }
    (None, false)
}

/// Nodes that stand beside each other, and how many tokens neighbours share.
struct Neighbours {
    nodes: Vec<Neighbour>,
}

#[derive(Clone, Copy, Default)]
struct Neighbour {
    previous: Option<usize>,
    next: Option<usize>,
    /// With `previous`.
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

    /// Takes a node out; how many tokens it shares with the neighbour that is most like it.
    fn take_out(&mut self, index: usize) -> usize {
        let node = self.nodes.get(index).copied().unwrap_or_default();
        if let Some(previous) = node.previous.and_then(|previous| self.nodes.get_mut(previous)) {
            previous.next = node.next;
        }
        let Some(next) = node.next.and_then(|next| self.nodes.get_mut(next)) else { return node.shared };
        let most = node.shared.max(next.shared);
        next.previous = node.previous;
        next.shared = node.shared.min(next.shared);
        most
    }
}

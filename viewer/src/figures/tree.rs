//! The forest of a trial's branches as a drawing: a lane per branch, and a column per call before it in its sequence.

use std::collections::HashMap;

use rolltap_rollout::row::RolloutRow;

/// The drawing without sizes: only lanes and columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    /// The lanes from top to bottom, in order of the branches. A branch without a drawn call has no lane.
    pub(crate) lanes: Vec<Lane>,
    /// The number of calls that are not drawn, because the drawing has as many as it may have.
    pub(crate) left_out: usize,
}

/// The calls that a branch has for itself, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    /// The index of the branch among the rows.
    pub(crate) branch: usize,
    /// The call that the first call of the lane continues. `None` if the branch continues no drawn call.
    pub(crate) from: Option<Place>,
    /// The calls from left to right.
    pub(crate) nodes: Vec<Node>,
}

/// A call in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// The number of calls before this call in the branch, which is also its index in the calls of the row.
    pub(crate) column: usize,
}

/// The position of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// The index of the lane.
    pub(crate) lane: usize,
    /// The column.
    pub(crate) column: usize,
}

impl Tree {
    /// Places the calls of the rows of one trial. Each answer has one place: in the lane of the first row that has it.
    /// At most `most` answers are placed.
    pub(crate) fn of(rows: &[RolloutRow], most: usize) -> Self {
        let mut tree = Self::default();
        let mut places: HashMap<(&str, i32), Option<Place>> = HashMap::new();
        let mut drawn = 0;
        for (branch, row) in rows.iter().enumerate() {
            let mut lane = Lane { branch, from: None, nodes: Vec::new() };
            let mut before = None;
            for (column, span) in row.calls.iter().enumerate() {
                let id = (span.call_id.as_str(), span.choice_index);
                if let Some(known) = places.get(&id) {
                    before = *known;
                    continue;
                }
                if drawn == most {
                    places.insert(id, None);
                    tree.left_out += 1;
                    continue;
                }
                drawn += 1;
                places.insert(id, Some(Place { lane: tree.lanes.len(), column }));
                if lane.nodes.is_empty() {
                    lane.from = before;
                }
                lane.nodes.push(Node { column });
            }
            if !lane.nodes.is_empty() {
                tree.lanes.push(lane);
            }
        }
        tree
    }

    /// Returns the number of columns.
    pub(crate) fn columns(&self) -> usize {
        let last = self.lanes.iter().flat_map(|lane| lane.nodes.last());
        last.map(|node| node.column + 1).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;

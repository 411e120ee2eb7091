use std::collections::HashSet;

use proptest::prelude::*;
use rolltap_testing::rollout_row;

use super::*;

/// Returns a row whose calls have these names, as a path from the first call to the last.
fn row(calls: &[usize]) -> RolloutRow {
    let mut row = rollout_row("trial", "task", None, 1);
    let span = row["calls"][0].clone();
    let spans = calls.iter().map(|call| {
        let mut span = span.clone();
        span["call_id"] = format!("call-{call}").into();
        span
    });
    row["calls"] = spans.collect();
    serde_json::from_value(row).unwrap()
}

fn columns(lane: &Lane) -> Vec<usize> {
    lane.nodes.iter().map(|node| node.column).collect()
}

#[test]
fn a_fork_begins_behind_the_call_that_it_continues() {
    let rows = [row(&[0, 1, 2]), row(&[0, 1, 3, 4]), row(&[5, 6]), row(&[0, 1, 3, 7])];
    let tree = Tree::of(&rows, 100);
    let lanes: Vec<_> = tree.lanes.iter().map(|lane| (lane.branch, columns(lane))).collect();
    assert_eq!(lanes, [(0, vec![0, 1, 2]), (1, vec![2, 3]), (2, vec![0, 1]), (3, vec![3])]);
    let from: Vec<_> = tree.lanes.iter().map(|lane| lane.from).collect();
    let place = |lane, column| Some(Place { lane, column });
    assert_eq!(from, [None, place(0, 1), None, place(1, 2)]);
    assert_eq!((tree.columns(), tree.left_out), (4, 0));
}

#[test]
fn a_long_trial_is_drawn_up_to_a_bound() {
    let rows = [row(&[0, 1, 2]), row(&[0, 3]), row(&[0, 3, 4])];
    let tree = Tree::of(&rows, 2);
    assert_eq!((tree.lanes.len(), tree.columns(), tree.left_out), (1, 2, 3));
    assert_eq!(Tree::of(&[], 2), Tree::default());
}

proptest! {
    #[test]
    fn each_call_is_drawn_once_and_no_two_at_one_place(
        paths in prop::collection::vec(prop::collection::vec(0..30_usize, 0..12), 0..12),
        most in 0..40_usize,
    ) {
        let rows: Vec<RolloutRow> = paths.iter().map(|path| row(path)).collect();
        let tree = Tree::of(&rows, most);
        let calls: HashSet<usize> = paths.iter().flatten().copied().collect();
        let drawn = tree.lanes.iter().flat_map(|lane| lane.nodes.iter().map(|node| paths[lane.branch][node.column]));
        let drawn: Vec<usize> = drawn.collect();
        prop_assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), drawn.len());
        prop_assert_eq!(drawn.len() + tree.left_out, calls.len());
        prop_assert_eq!(drawn.len(), calls.len().min(most));
        for (index, lane) in tree.lanes.iter().enumerate() {
            prop_assert!(columns(lane).is_sorted_by(|left, right| left < right));
            if let Some(from) = lane.from {
                prop_assert!(from.lane < index, "a line leads upwards");
                prop_assert!(tree.lanes[from.lane].nodes.iter().any(|node| node.column == from.column));
            }
        }
    }
}

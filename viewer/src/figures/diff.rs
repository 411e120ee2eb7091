//! The difference between two sequences of token ids, in a bounded part around the first differing token.

/// The maximum number of tokens of each sequence that are compared, from the first differing token on.
const COMPARED: usize = 400;
/// The number of equal tokens before and behind the difference.
const CONTEXT: usize = 40;

/// A token of one sequence or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Same(i32),
    /// Only the left sequence has it.
    Removed(i32),
    /// Only the right sequence has it.
    Inserted(i32),
}

/// The part of two sequences around their difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenDiff {
    /// The number of equal tokens before the first differing one.
    pub(crate) equal: usize,
    pub(crate) steps: Vec<Step>,
    /// The numbers of tokens behind the part, left and right.
    pub(crate) rest: (usize, usize),
}

/// Compares two sequences.
pub(crate) fn diff(left: &[i32], right: &[i32]) -> TokenDiff {
    let equal = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    let (before, left) = left.split_at(equal);
    let right = right.get(equal..).unwrap_or_default();
    let end = left.iter().rev().zip(right.iter().rev()).take_while(|(left, right)| left == right).count();
    let (left, behind) = left.split_at(left.len() - end);
    let right = right.get(..right.len() - end).unwrap_or_default();
    let (compared_left, compared_right) = (first(left, COMPARED), first(right, COMPARED));
    let is_whole = compared_left.len() == left.len() && compared_right.len() == right.len();

    let context = before.get(before.len().saturating_sub(CONTEXT)..).unwrap_or_default();
    let mut steps: Vec<Step> = context.iter().copied().map(Step::Same).collect();
    steps.extend(common_subsequence(compared_left, compared_right));
    let behind_shown = if is_whole { first(behind, CONTEXT) } else { &[] };
    steps.extend(behind_shown.iter().copied().map(Step::Same));
    let rest = |all: &[i32], compared: &[i32]| all.len() - compared.len() + behind.len() - behind_shown.len();
    TokenDiff { equal, steps, rest: (rest(left, compared_left), rest(right, compared_right)) }
}

fn first(tokens: &[i32], most: usize) -> &[i32] {
    tokens.get(..most).unwrap_or(tokens)
}

/// Aligns two sequences along a longest common subsequence. Time and memory grow with the product of their lengths.
fn common_subsequence(left: &[i32], right: &[i32]) -> Vec<Step> {
    let width = right.len() + 1;
    // The entry at (i, j) is the length for left[i..] and right[j..].
    let mut lengths = vec![0_u16; (left.len() + 1) * width];
    let at = |lengths: &[u16], i: usize, j: usize| lengths.get(i * width + j).copied().unwrap_or_default();
    for (i, one) in left.iter().enumerate().rev() {
        for (j, other) in right.iter().enumerate().rev() {
            let length = if one == other {
                at(&lengths, i + 1, j + 1) + 1
            } else {
                at(&lengths, i + 1, j).max(at(&lengths, i, j + 1))
            };
            if let Some(entry) = lengths.get_mut(i * width + j) {
                *entry = length;
            }
        }
    }
    let (mut i, mut j, mut steps) = (0, 0, Vec::new());
    loop {
        match (left.get(i), right.get(j)) {
            (None, None) => return steps,
            (Some(one), Some(other)) if one == other => {
                steps.push(Step::Same(*one));
                (i, j) = (i + 1, j + 1);
            }
            (Some(one), other) if other.is_none() || at(&lengths, i + 1, j) >= at(&lengths, i, j + 1) => {
                steps.push(Step::Removed(*one));
                i += 1;
            }
            (_, Some(other)) => {
                steps.push(Step::Inserted(*other));
                j += 1;
            }
            (Some(_), None) => return steps,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn side(steps: &[Step], is_left: bool) -> Vec<i32> {
        let token = |step: &Step| match step {
            Step::Same(id) => Some(*id),
            Step::Removed(id) => is_left.then_some(*id),
            Step::Inserted(id) => (!is_left).then_some(*id),
        };
        steps.iter().filter_map(token).collect()
    }

    #[test]
    fn a_dropped_and_an_added_token_are_found() {
        let found = diff(&[1, 2, 3, 4, 5, 6], &[1, 2, 4, 9, 5, 6, 7]);
        assert_eq!((found.equal, found.rest), (2, (0, 0)));
        let expected = [
            Step::Same(1),
            Step::Same(2),
            Step::Removed(3),
            Step::Same(4),
            Step::Inserted(9),
            Step::Same(5),
            Step::Same(6),
            Step::Inserted(7),
        ];
        assert_eq!(found.steps, expected);
    }

    #[test]
    fn long_sequences_are_compared_in_part() {
        let (left, right): (Vec<i32>, Vec<i32>) =
            ((0..2000).collect(), (0..1000).chain(5000..9000).collect());
        let found = diff(&left, &right);
        assert_eq!((found.equal, found.rest), (1000, (600, 3600)));
        assert_eq!(found.steps.len(), CONTEXT + 2 * COMPARED);
    }

    proptest! {
        #[test]
        fn the_steps_lead_from_left_to_right(
            left in prop::collection::vec(0..6, 0..30), right in prop::collection::vec(0..6, 0..30),
        ) {
            let found = diff(&left, &right);
            prop_assert_eq!(found.rest, (0, 0));
            prop_assert_eq!(side(&found.steps, true), left);
            prop_assert_eq!(side(&found.steps, false), right);
        }
    }
}

//! Where the samples of a group part: the first token that differs from that of the first sample.

/// The place at which two token sequences part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Divergence {
    /// The index of the first token that differs. Equal to the length of the shorter sequence if it is a prefix of the
    /// other.
    pub(crate) at: usize,
    /// That token of the first sequence, with its logprob. `None` if the sequence ends there.
    pub(crate) left: Option<(i32, f32)>,
    /// The same of the second sequence.
    pub(crate) right: Option<(i32, f32)>,
}

/// Compares two sequences of tokens with their logprobs. `None` if they are equal.
pub(crate) fn divergence(left: (&[i32], &[f32]), right: (&[i32], &[f32])) -> Option<Divergence> {
    let at = left.0.iter().zip(right.0).take_while(|(left, right)| left == right).count();
    let token = |(ids, logprobs): (&[i32], &[f32])| {
        Some((*ids.get(at)?, logprobs.get(at).copied().unwrap_or_default()))
    };
    let (left, right) = (token(left), token(right));
    (left.is_some() || right.is_some()).then_some(Divergence { at, left, right })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_part_at_the_first_other_token() {
        let logprobs = [-0.1, -0.2, -0.3];
        let parted = divergence((&[1, 2, 3], &logprobs), (&[1, 2, 4], &logprobs)).unwrap();
        assert_eq!((parted.at, parted.left, parted.right), (2, Some((3, -0.3)), Some((4, -0.3))));
        let shorter = divergence((&[1, 2, 3], &logprobs), (&[1, 2], &logprobs)).unwrap();
        assert_eq!((shorter.at, shorter.left, shorter.right), (2, Some((3, -0.3)), None));
        assert_eq!(divergence((&[1], &[0.0]), (&[1], &[0.0])), None);
    }
}

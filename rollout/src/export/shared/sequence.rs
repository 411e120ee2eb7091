//! Splits a row as trainers do: the prompt up to the first sampled token, and everything after it. [`super::refusal`]
//! has already checked that the lists fit each other.

use super::lines::refused;
use crate::export::exporter::ExportError;
use crate::row::RolloutRow;

/// A row, split at the end of its prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence<'a> {
    pub(crate) row: &'a RolloutRow,
    /// The tokens before the first sampled one.
    pub(crate) prompt: &'a [i32],
    /// The tokens from the first sampled one on, including those of the environment.
    pub(crate) response: &'a [i32],
    /// `loss_mask` of the response.
    pub(crate) mask: &'a [u8],
    /// The logprobs of the response in nats, 0.0 for tokens that were not sampled.
    pub(crate) logprobs: &'a [f32],
}

impl<'a> Sequence<'a> {
    /// # Errors
    /// The prompt ends outside the row, or is empty, or has a trained token, which a trainer of the response
    /// alone would skip.
    pub(crate) fn of(row: &'a RolloutRow) -> Result<Self, ExportError> {
        let split =
            // A trainer needs at least one token of each part.
            usize::try_from(row.prompt_len).ok().filter(|&split| 0 < split && split < row.token_ids.len());
        let parts = split.and_then(|split| {
            let (prompt, response) = row.token_ids.split_at_checked(split)?;
            Some(Self {
                row,
                prompt,
                response,
                mask: row.loss_mask.get(split..)?,
                logprobs: row.logprobs.get(split..)?,
            })
        });
        let sequence = parts.ok_or_else(|| {
            let problem = format!("prompt_len is {}, of {} tokens", row.prompt_len, row.token_ids.len());
            refused(row, problem)
        })?;
        if let Some(index) = row.loss_mask.iter().zip(sequence.prompt).position(|(&mask, _)| mask == 1) {
            return Err(refused(
                row,
                format!("loss_mask[{index}] is 1, and the prompt has {} tokens", row.prompt_len),
            ));
        }
        Ok(sequence)
    }
}

/// Truncates a row after its last trained token, if there is a trained token. Returns whether it removed tokens.
/// `calls` remain unchanged.
///
/// The tail would cost a forward pass without a benefit. Trainers that put the reward on the last token of a row would
/// also lose it if that token is masked.
pub(crate) fn cut_tail(row: &mut RolloutRow) -> bool {
    // A row without trained tokens remains whole, because its end has no other definition.
    let Some(last) = row.loss_mask.iter().rposition(|&mask| mask == 1) else { return false };
    let length = last + 1;
    if length == row.token_ids.len() {
        return false;
    }
    row.token_ids.truncate(length);
    row.sampled_mask.truncate(length);
    row.trainable_mask.truncate(length);
    row.loss_mask.truncate(length);
    row.logprobs.truncate(length);
    row.token_version.truncate(length);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing::fixture::straight;

    #[test]
    fn a_row_is_cut_where_the_policy_first_spoke() {
        let trial = straight();
        let sequence = Sequence::of(&trial.rows[0]).unwrap();
        assert_eq!((sequence.prompt, sequence.response), (&[1, 2][..], &[3, 4, 5, 6][..]));
        assert_eq!((sequence.mask, sequence.logprobs), (&[1, 0, 1, 1][..], &[-3.0, 0.0, -5.0, -6.0][..]));
    }

    /// A function that spoils a row, and the expected error.
    type Case = (fn(&mut RolloutRow), &'static str);

    #[test]
    fn a_prompt_that_is_none_is_refused() {
        let refusal = |spoil: fn(&mut RolloutRow)| {
            let mut row = straight().rows.remove(0);
            spoil(&mut row);
            Sequence::of(&row).unwrap_err().to_string()
        };
        let cases: [Case; 3] = [
            (|row| row.prompt_len = 6, "prompt_len is 6, of 6 tokens"),
            (|row| row.prompt_len = 0, "prompt_len is 0, of 6 tokens"),
            (|row| row.prompt_len = 3, "loss_mask[2] is 1, and the prompt has 3 tokens"),
        ];
        for (spoil, told) in cases {
            let refusal = refusal(spoil);
            assert!(refusal.starts_with("trial straight, branch 0: ") && refusal.contains(told), "{refusal}");
        }
    }

    #[test]
    fn a_row_ends_with_its_last_trained_token() {
        let mut row = straight().rows.remove(0);
        assert!(!cut_tail(&mut row));
        row.loss_mask[5] = 0;
        assert!(cut_tail(&mut row));
        assert_eq!((&*row.token_ids, &*row.loss_mask), (&[1, 2, 3, 4, 5][..], &[0, 0, 1, 0, 1][..]));
        assert!(Sequence::of(&row).is_ok());
        row.loss_mask.fill(0);
        assert!(!cut_tail(&mut row), "of a row that trains nothing no token is the last");
    }
}

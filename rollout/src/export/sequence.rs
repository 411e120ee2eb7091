//! A row as trainers split it: the prompt, which ends where the policy first spoke, and all that follows.
//!
//! Several trainers accept lists that do not fit each other, or a logprob that is none, without a word. So a row is
//! looked at once more here, whoever made it; what is refused in no format is then a number that trains something else.

use super::exporter::ExportError;
use super::lines::refused;
use super::row_facts::is_trained;
use crate::row::RolloutRow;

/// A row whose lists fit each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence<'a> {
    pub(crate) row: &'a RolloutRow,
    /// What stands before the first sampled token.
    pub(crate) prompt: &'a [i32],
    /// The first sampled token and all after it, those of the environment included.
    pub(crate) response: &'a [i32],
    /// `loss_mask` of the response.
    pub(crate) mask: &'a [u8],
    /// Of the response: nats, 0.0 where nothing was sampled.
    pub(crate) logprobs: &'a [f32],
}

impl<'a> Sequence<'a> {
    /// # Errors
    /// The row is not what `rollout/1` says, nothing stands before its first sampled token, or it trains tokens of which
    /// some stand for images.
    pub(crate) fn of(row: &'a RolloutRow) -> Result<Self, ExportError> {
        refuse_lengths(row)?;
        refuse_values(row)?;
        let split =
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
        if row.has_media && is_trained(row) {
            return Err(refused(
                row,
                "its calls held images, audio or video, for which its tokens are placeholders that this format \
                 cannot fill; export without this trial, or as jsonl or parquet",
            ));
        }
        Ok(sequence)
    }
}

/// Takes off a row what stands after its last trained token, if anything is trained and the lists fit each other; says
/// whether there was something.
///
/// It would cost a forward pass for nothing, and worse: trainers that put the reward on the last token of a row lose it
/// where that token is masked, and train the row on nothing.
pub(crate) fn cut_tail(row: &mut RolloutRow) -> bool {
    let Some(last) = row.loss_mask.iter().rposition(|&mask| mask == 1) else { return false };
    let length = last + 1;
    if length == row.token_ids.len() || refuse_lengths(row).is_err() {
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

fn refuse_lengths(row: &RolloutRow) -> Result<(), ExportError> {
    let expected = row.token_ids.len();
    let lengths = [
        ("loss_mask", row.loss_mask.len()),
        ("sampled_mask", row.sampled_mask.len()),
        ("logprobs", row.logprobs.len()),
        ("token_version", row.token_version.len()),
    ];
    match lengths.into_iter().find(|&(_, length)| length != expected) {
        None => Ok(()),
        Some((name, length)) => {
            Err(refused(row, format!("{name} has {length} values, token_ids has {expected}")))
        }
    }
}

fn refuse_values(row: &RolloutRow) -> Result<(), ExportError> {
    let is_sound = |logprob: &f32| logprob.is_finite() && *logprob <= 0.0;
    if let Some((index, logprob)) = row.logprobs.iter().enumerate().find(|(_, logprob)| !is_sound(logprob)) {
        return Err(refused(
            row,
            format!("logprobs[{index}] is {logprob}, not a finite number of at most 0"),
        ));
    }
    if let Some((index, mask)) = row.loss_mask.iter().enumerate().find(|&(_, &mask)| mask > 1) {
        return Err(refused(row, format!("loss_mask[{index}] is {mask}, not 0 or 1")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture::straight;

    #[test]
    fn a_row_is_cut_where_the_policy_first_spoke() {
        let trial = straight();
        let sequence = Sequence::of(&trial.rows[0]).unwrap();
        assert_eq!((sequence.prompt, sequence.response), (&[1, 2][..], &[3, 4, 5, 6][..]));
        assert_eq!((sequence.mask, sequence.logprobs), (&[1, 0, 1, 1][..], &[-3.0, 0.0, -5.0, -6.0][..]));
    }

    /// What spoils a row, and what is told of it.
    type Case = (fn(&mut RolloutRow), &'static str);

    #[test]
    fn what_would_train_something_else_is_refused_by_name_and_place() {
        let refusal = |spoil: fn(&mut RolloutRow)| {
            let mut row = straight().rows.remove(0);
            spoil(&mut row);
            Sequence::of(&row).unwrap_err().to_string()
        };
        let cases: [Case; 10] = [
            (|row| row.logprobs[2] = f32::NAN, "logprobs[2] is NaN, not a finite number of at most 0"),
            (|row| row.logprobs[4] = 0.25, "logprobs[4] is 0.25, not a finite number of at most 0"),
            (
                |row| row.logprobs[4] = f32::NEG_INFINITY,
                "logprobs[4] is -inf, not a finite number of at most 0",
            ),
            (|row| row.loss_mask[3] = 2, "loss_mask[3] is 2, not 0 or 1"),
            (|row| row.logprobs.truncate(5), "logprobs has 5 values, token_ids has 6"),
            (|row| row.token_version.clear(), "token_version has 0 values, token_ids has 6"),
            (|row| row.prompt_len = 6, "prompt_len is 6, of 6 tokens"),
            (|row| row.prompt_len = 0, "prompt_len is 0, of 6 tokens"),
            (|row| row.prompt_len = 3, "loss_mask[2] is 1, and the prompt has 3 tokens"),
            (|row| row.has_media = true, "its calls held images, audio or video"),
        ];
        for (spoil, told) in cases {
            let refusal = refusal(spoil);
            assert!(refusal.starts_with("trial straight, branch 0: ") && refusal.contains(told), "{refusal}");
        }
    }

    #[test]
    fn images_that_train_nothing_do_no_harm() {
        let mut row = straight().rows.remove(0);
        row.has_media = true;
        row.loss_mask.fill(0);
        assert!(Sequence::of(&row).is_ok());
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

    #[test]
    fn lists_that_do_not_fit_are_left_to_be_refused() {
        let mut row = straight().rows.remove(0);
        row.loss_mask[5] = 0;
        row.logprobs.push(-1.0);
        assert!(!cut_tail(&mut row));
        assert!(Sequence::of(&row).is_err());
    }
}

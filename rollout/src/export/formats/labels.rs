//! Pre-tokenised rows for supervised fine-tuning, as TRL 1.16 takes these: one line per branch with `input_ids`,
//! `attention_mask` and `labels`.
//!
//! The ids are exactly the captured ones, up to the last trained token of the branch. `labels` repeats `input_ids`, with
//! -100 for each token that is not trained, and is not shifted: models of `transformers` shift labels themselves.
//! `attention_mask` is 1 for each token. A token that several branches share is trained in one of them. The format has no
//! logprobs, and the reward is only there to select and weigh lines. The other fields identify the line.

use std::io::Write;

use serde::Serialize;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};
use crate::export::shared::line_source::LineSource;
use crate::export::shared::lines::{Lines, Tally};
use crate::export::shared::refusal::refuse_unfit;
use crate::export::shared::row_queries::is_trained;
use crate::export::shared::sequence::cut_tail;
use crate::row::RolloutRow;

/// The label of a token that is not trained: the `ignore_index` of PyTorch's cross entropy.
const IGNORED: i32 = -100;

/// Writes pre-tokenised rows. The module describes the format.
#[derive(Debug)]
pub struct LabelsExporter<W: Write> {
    lines: Lines<W>,
    tally: Tally,
}

#[derive(Serialize)]
struct LabelsLine<'a> {
    input_ids: &'a [i32],
    attention_mask: Vec<u8>,
    labels: Vec<i32>,
    #[serde(flatten)]
    source: LineSource<'a>,
}

impl<W: Write> LabelsExporter<W> {
    /// Returns an exporter. Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { lines: Lines::new(out), tally: Tally::default() }
    }

    fn write_branch(&mut self, row: &RolloutRow, reward: Option<f64>) -> Result<(), ExportError> {
        let label = |(&id, &mask): (&i32, &u8)| if mask == 1 { id } else { IGNORED };
        let line = LabelsLine {
            input_ids: &row.token_ids,
            attention_mask: vec![1; row.token_ids.len()],
            labels: row.token_ids.iter().zip(&row.loss_mask).map(label).collect(),
            source: LineSource::of(row, reward),
        };
        self.lines.write(&row.trial_id, &line)
    }
}

impl<W: Write> Exporter for LabelsExporter<W> {
    /// # Errors
    /// The trial has images, or a reward that is not finite.
    fn write(&mut self, mut trial: Trial) -> Result<(), ExportError> {
        refuse_unfit(&trial)?;
        let tails = trial.rows.iter_mut().map(cut_tail).filter(|&had_tail| had_tail).count();
        self.tally.add("branches: tokens after the last one that is trained", tails);
        let (trained, untrained): (Vec<_>, Vec<_>) = trial.rows.iter().partition(|row| is_trained(row));
        self.tally.add("branches: nothing on them is trained", untrained.len());
        self.tally.add("branches: their logprobs and policy versions", trained.len());
        let advantages = if trial.advantage.is_some() { trained.len() } else { 0 };
        self.tally.add("branches: their advantages", advantages);
        trained.into_iter().try_for_each(|row| self.write_branch(row, trial.reward))
    }

    fn finish(self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        self.lines.finish()?;
        Ok(self.tally.omissions())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::export::testing::any_trial::{any_group, trained_rows};
    use crate::export::testing::fixture::{forked, straight};
    use crate::export::testing::read_back::{ints, objects, told, written};

    #[test]
    fn a_branch_is_a_line_and_shared_tokens_have_one_label() {
        let (lines, _) = written(LabelsExporter::new, [straight(), forked()]).unwrap();
        let expected = [
            r#"{"input_ids":[1,2,3,4,5,6],"attention_mask":[1,1,1,1,1,1],"labels":[-100,-100,3,-100,5,6],"trial_id":"straight","task_id":"org/task","group_id":"group","sample_index":0,"branch_index":0,"reward":1.0}"#,
            r#"{"input_ids":[1,2,3,4,5],"attention_mask":[1,1,1,1,1],"labels":[-100,-100,3,-100,5],"trial_id":"forked","task_id":"org/task","group_id":"group","sample_index":1,"branch_index":0,"reward":0.0}"#,
            r#"{"input_ids":[1,2,3,7,8,9],"attention_mask":[1,1,1,1,1,1],"labels":[-100,-100,-100,-100,8,9],"trial_id":"forked","task_id":"org/task","group_id":"group","sample_index":1,"branch_index":1,"reward":0.0}"#,
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_is_not_in_the_lines_is_reported() {
        let mut trial = forked();
        trial.rows[0].loss_mask.fill(0);
        trial.rows[1].loss_mask[5] = 0;
        let (lines, omissions) = written(LabelsExporter::new, [trial]).unwrap();
        assert_eq!(lines.len(), 1);
        let expected = [
            "1 branches: tokens after the last one that is trained",
            "1 branches: nothing on them is trained",
            "1 branches: their logprobs and policy versions",
            "1 branches: their advantages",
        ];
        assert_eq!(told(&omissions), expected);
    }

    proptest! {
        #[test]
        fn labels_are_the_trained_ids(group in any_group()) {
            let lines = objects(LabelsExporter::new, group.clone());
            let rows: Vec<_> = group.iter().flat_map(trained_rows).collect();
            prop_assert_eq!(lines.len(), rows.len());
            for (line, row) in lines.iter().zip(rows) {
                prop_assert_eq!(&ints(&line["input_ids"]), &row.token_ids);
                let labels = ints(&line["labels"]);
                let expected: Vec<i32> = row.token_ids.iter().zip(&row.loss_mask)
                    .map(|(&id, &mask)| if mask == 1 { id } else { -100 }).collect();
                prop_assert_eq!(labels, expected);
                prop_assert_eq!(ints(&line["attention_mask"]), vec![1; row.token_ids.len()]);
            }
        }
    }
}

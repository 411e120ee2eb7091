//! Chat messages for supervised fine-tuning, as TRL 1.16 and most other trainers take these: one line per branch.
//!
//! `messages` is the conversation of the branch: the messages of its requests, each once, with the captured answers.
//! They have the form that chat templates read ([`training_message`]). `tools` has the tools that the last request
//! offered, and is absent without any. The other fields identify the line, and `reward` is the reward to train on.
//!
//! A branch on which nothing is trained has no line: that of a title or a probe, or of a masked trial. The format has no
//! mask per message, so an answer that is not trained is in its conversation like any other. The trainer renders and
//! tokenises the words again, and may get other tokens than those that were sampled. The format `labels` has the exact
//! tokens and the mask.

use std::io::Write;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};
use crate::export::shared::line_source::LineSource;
use crate::export::shared::lines::{Lines, Tally};
use crate::export::shared::refusal::refuse_unfit;
use crate::export::shared::row_queries::is_trained;
use crate::export::shared::training_message::training_message;
use crate::export::shared::transcript::{Message, offered_tools, transcript};
use crate::export::shared::turn::turns;
use crate::row::RolloutRow;

/// Writes conversations. The module describes the format.
#[derive(Debug)]
pub struct MessagesExporter<W: Write> {
    lines: Lines<W>,
    tally: Tally,
}

#[derive(Serialize)]
struct MessagesLine<'a> {
    messages: Vec<Message>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    #[serde(flatten)]
    source: LineSource<'a>,
}

impl<W: Write> MessagesExporter<W> {
    /// Returns an exporter. Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { lines: Lines::new(out), tally: Tally::default() }
    }

    fn write_branch(&mut self, row: &RolloutRow, reward: Option<f64>) -> Result<(), ExportError> {
        let messages: Vec<_> = transcript(row)?.into_iter().map(training_message).collect();
        if messages.is_empty() {
            self.tally.add("branches: their messages were not recorded, so that they have no line", 1);
            return Ok(());
        }
        let unrecorded = row.calls.iter().filter(|call| call.messages.is_none()).count();
        self.tally.add("calls: their answers, which were not recorded", unrecorded);
        let untrained = turns(row)?.iter().filter(|turn| !turn.loss_mask().contains(&1)).count();
        self.tally.add(
            "answers: that they are not trained here, or on an earlier branch (a trainer of all answers trains them)",
            untrained,
        );
        self.tally.add("branches: the tokens that were sampled, and their logprobs", 1);
        let line = MessagesLine { messages, tools: offered_tools(row)?, source: LineSource::of(row, reward) };
        self.lines.write(&row.trial_id, &line)
    }
}

impl<W: Write> Exporter for MessagesExporter<W> {
    /// # Errors
    /// The trial has images, messages that are no list of chat messages, or a reward that is not finite.
    fn write(&mut self, trial: Trial) -> Result<(), ExportError> {
        refuse_unfit(&trial)?;
        let (trained, untrained): (Vec<_>, Vec<_>) = trial.rows.iter().partition(|row| is_trained(row));
        self.tally.add("branches: nothing on them is trained", untrained.len());
        self.tally.add("trials: their advantages", usize::from(trial.advantage.is_some()));
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
    use serde_json::json;

    use super::*;
    use crate::export::testing::any_trial::{any_group, trained_rows};
    use crate::export::testing::fixture::{forked, straight, with_messages};
    use crate::export::testing::read_back::{objects, told, written};

    #[test]
    fn a_branch_is_a_conversation() {
        let mut trial = with_messages(straight());
        trial.rows[0].calls[1].tools = Some(r#"[{"type":"function"}]"#.to_owned());
        let (lines, omissions) = written(MessagesExporter::new, [trial]).unwrap();
        let expected = r#"{"messages":[{"role":"user","content":"org/task"},{"role":"assistant","content":"straight c0000"},{"role":"user","content":"next"},{"role":"assistant","content":"straight c0001"}],"tools":[{"type":"function"}],"trial_id":"straight","task_id":"org/task","group_id":"group","sample_index":0,"branch_index":0,"reward":1.0}"#;
        assert_eq!(lines, [expected]);
        let told = told(&omissions);
        assert_eq!(
            told,
            ["1 trials: their advantages", "1 branches: the tokens that were sampled, and their logprobs"]
        );
    }

    #[test]
    fn what_is_not_trained_or_not_recorded_is_reported() {
        let mut fork = with_messages(forked());
        fork.rows[1].calls[1].messages = None;
        let mut masked = with_messages(straight());
        masked.rows[0].loss_mask.fill(0);
        let (lines, omissions) = written(MessagesExporter::new, [fork, masked, straight()]).unwrap();
        assert_eq!(lines.len(), 2);
        let told = told(&omissions);
        for expected in [
            "1 branches: nothing on them is trained",
            "1 branches: their messages were not recorded, so that they have no line",
            "1 calls: their answers, which were not recorded",
        ] {
            assert!(told.iter().any(|told| told == expected), "{told:?}");
        }
        // The second branch repeats the first answer, which the first branch owns.
        assert!(
            told.iter().any(|told| told.starts_with("1 answers: that they are not trained here")),
            "{told:?}"
        );
    }

    #[test]
    fn texts_that_are_no_messages_are_refused() {
        let mut trial = straight();
        trial.rows[0].calls[0].messages = Some("[1]".to_owned());
        let error = written(MessagesExporter::new, [trial]).unwrap_err().to_string();
        assert!(error.starts_with("trial straight, branch 0: the messages of call c0000"), "{error}");
        let mut trial = with_messages(straight());
        trial.rows[0].calls[1].tools = Some("[".to_owned());
        let error = written(MessagesExporter::new, [trial]).unwrap_err().to_string();
        assert!(error.contains("the tools of call c0001 are no JSON"), "{error}");
    }

    proptest! {
        #[test]
        fn each_trained_branch_has_its_answers_in_order(group in any_group()) {
            let group: Vec<_> = group.into_iter().map(with_messages).collect();
            let lines = objects(MessagesExporter::new, group.clone());
            let rows: Vec<_> = group.iter().flat_map(trained_rows).collect();
            prop_assert_eq!(lines.len(), rows.len());
            for (line, row) in lines.iter().zip(rows) {
                let messages = line["messages"].as_array().unwrap();
                let answers: Vec<_> = messages.iter().filter(|message| message["role"] == "assistant").collect();
                prop_assert_eq!(answers.len(), row.calls.len());
                for (answer, call) in answers.iter().zip(&row.calls) {
                    prop_assert_eq!(&answer["content"], &json!(format!("{} {}", row.trial_id, call.call_id)));
                }
            }
        }
    }
}

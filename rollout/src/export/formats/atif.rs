//! Trajectories of the Agent Trajectory Interchange Format, ATIF-v1.8 as `harbor` 0.25.0 validates it, one JSON line
//! per trial.
//!
//! The first branch is the trajectory. Each further branch (a sub-agent's, a fork, the part after a compaction) is
//! embedded in its `subagent_trajectories`, with `branch_cause` in `extra`. An answer is a step with the ids of its
//! whole prompt and its own ids. Only the first branch that has an answer has its step.
//!
//! If the messages of calls were recorded, an answer has its words in `message`, `reasoning_content` and `tool_calls`.
//! The messages that its request adds to the conversation are steps before it: `user`, `system` (also of the role
//! `developer`), and `agent` with `is_copied_context` for an answer that the client brought along. The result of a tool
//! is an `observation` of the step that called the tool, or of a `system` step if that call is in another trajectory. If
//! no messages were recorded, `message` is empty, as `notes` explains.
//!
//! The format has no mask. `logprobs` are present only if a token of the answer is trained, so that no reader trains on
//! the other answers. `extra.loss_mask` of the step's metrics is 1 for each trained token. The root's `extra` has the
//! other data for a trainer: reward, advantage, group, failure. A rollout does not record the agent's name, so it is
//! `unknown`.

mod message;
mod step;
mod trajectory;

use std::io::Write;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};
use crate::export::shared::lines::{Lines, Tally};
use crate::export::shared::refusal::refuse_unfit;
use step::Step;
use trajectory::Trajectory;

/// Writes trajectories of ATIF-v1.8. The module describes the format.
#[derive(Debug)]
pub struct AtifExporter<W: Write> {
    lines: Lines<W>,
    told: Tally,
}

impl<W: Write> AtifExporter<W> {
    /// Returns an exporter. Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { lines: Lines::new(out), told: Tally::default() }
    }
}

impl<W: Write> Exporter for AtifExporter<W> {
    /// # Errors
    /// The trial has images, messages that are no list of chat messages, or a reward that is not finite.
    fn write(&mut self, trial: Trial) -> Result<(), ExportError> {
        refuse_unfit(&trial)?;
        let Some(trajectory) = Trajectory::of(&trial)? else { return Ok(()) };
        let Some(first) = trial.rows.first() else { return Ok(()) };
        self.lines.write(&first.trial_id, &trajectory)?;
        self.told
            .add("calls: their messages, which were not recorded", trajectory.steps_without(Step::has_words));
        self.told.add(
            "calls: the logprobs of answers that are not trained",
            trajectory.steps_without(Step::is_trained_answer),
        );
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        self.lines.finish()?;
        Ok(self.told.omissions())
    }
}

#[cfg(test)]
mod tests;

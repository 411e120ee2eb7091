//! Trajectories of the Agent Trajectory Interchange Format, ATIF-v1.8 as `harbor` 0.25.0 checks it, one JSON line per
//! trial.
//!
//! The first branch is the trajectory, each further one (a sub-agent's, a fork, what came after a compaction) is embedded
//! in its `subagent_trajectories`, with `branch_cause` in `extra`. An answer is a step with the ids of its whole prompt
//! and its own, of the first branch that has it, so each stands once. What was said is not in the step: `message` is
//! empty, and `notes` says so. Where a call's messages were kept they are in its step's `extra.messages` as they were
//! sent.
//!
//! The format has no mask. `logprobs` are there where something of the answer is trained, and nowhere else, so that no
//! reader trains on the others; `extra.loss_mask` of the step's metrics has 1 for each token that is. What a trainer
//! needs beside is in the root's `extra`: reward, advantage, group, failure. Who the agent was no rollout says.

mod step;
mod trajectory;

use std::io::Write;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};
use crate::export::shared::lines::{Lines, Tally};
use crate::export::shared::refusal::refuse_unfit;
use step::Step;
use trajectory::Trajectory;

/// Writes trajectories of ATIF-v1.8; see the module.
#[derive(Debug)]
pub struct AtifExporter<W: Write> {
    lines: Lines<W>,
    told: Tally,
}

impl<W: Write> AtifExporter<W> {
    /// Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { lines: Lines::new(out), told: Tally::default() }
    }
}

impl<W: Write> Exporter for AtifExporter<W> {
    /// # Errors
    /// Also refused: images, messages that are no JSON, and a reward that is no number.
    fn write(&mut self, trial: Trial) -> Result<(), ExportError> {
        refuse_unfit(&trial)?;
        let Some(trajectory) = Trajectory::of(&trial)? else { return Ok(()) };
        let Some(first) = trial.rows.first() else { return Ok(()) };
        self.lines.write(&first.trial_id, &trajectory)?;
        self.told
            .add("calls: their messages, which were not kept", trajectory.steps_without(Step::has_messages));
        self.told.add(
            "calls: the logprobs of answers that are not trained",
            trajectory.steps_without(Step::is_trained),
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

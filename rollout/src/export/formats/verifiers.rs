//! Traces of verifiers' v1 interface, one JSON line per trial: the shape of `verifiers` 0.4.0 (`Trace`, version 1).
//!
//! A trace is a graph of nodes. A node has the tokens that it adds to the sequence, and each path from a root to a leaf
//! is a branch. Rows with a common beginning share its nodes, so each token appears once in the line. A trainer trains
//! a shared answer in the first branch that has it, which is also its owner here. Each call has two nodes. A `user`
//! node has everything that the conversation gained, with the text of the template, and an `assistant` node has the
//! answer. It is not recorded which message a prompt token belongs to.
//!
//! `mask` is 1 for the trained tokens of this export. `logprobs` and `advantages` have a value per 1 in `mask`, so a
//! sampled token that is not trained has none. A trial has `ok: false` if it has no reward, or if it is only present
//! for its group. Trainers drop such traces. `rewards` has the reward to train on as `reward`, and `metrics` has all
//! numbers of the verifier. `info.rolltap` has the data for which verifiers has no field: group, branches, and the role
//! and policy version of each entry of `calls`.
//!
//! Read a line with `WireTrace.model_validate_json`. verifiers itself writes records with four decimals by default
//! (`float_decimals=None` disables this). The numbers here are exact.

mod graph;
mod trace;

use std::io::Write;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};
use crate::export::shared::lines::{Lines, Tally};
use crate::export::shared::refusal::refuse_unfit;
use graph::Graph;
use trace::Trace;

/// Writes `Trace` records as of `verifiers` 0.4.0. The module describes the format.
#[derive(Debug)]
pub struct VerifiersExporter<W: Write> {
    lines: Lines<W>,
    told: Tally,
}

impl<W: Write> VerifiersExporter<W> {
    /// Returns an exporter. Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { lines: Lines::new(out), told: Tally::default() }
    }
}

impl<W: Write> Exporter for VerifiersExporter<W> {
    /// # Errors
    /// The trial has images, which a trace of tokens cannot represent, or branches that disagree about a
    /// shared call.
    fn write(&mut self, trial: Trial) -> Result<(), ExportError> {
        refuse_unfit(&trial)?;
        let Some(row) = trial.rows.first() else { return Ok(()) };
        let graph = Graph::of(&trial.rows)?;
        self.lines.write(&row.trial_id, &Trace::new(&trial, row, &graph))?;
        self.told
            .add("messages: their words and bounds (nodes hold what a call added as one)", graph.turns());
        self.told.add("calls: the policy versions of all their tokens but the first", graph.straddling());
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        self.lines.finish()?;
        Ok(self.told.omissions())
    }
}

#[cfg(test)]
mod tests;

//! Traces of verifiers' v1 interface, one JSON line per trial: the shape of `verifiers` 0.4.0 (`Trace`, version 1).
//!
//! A trace is a graph of nodes. A node holds the tokens that it adds to the sequence, and each path from a root to a
//! leaf is a branch: rows that begin alike share the nodes of what they share, so a token stands in the line once, and
//! a trainer trains a shared answer in the first branch that has it, which is the one that owns it here. Each call
//! gives two nodes: a `user` node with all that the conversation grew by, template and all, and an `assistant` node with
//! the answer. Which message a token of the prompt belongs to nobody recorded.
//!
//! `mask` is 1 where this export trains. `logprobs` and `advantages` have a value per 1 in `mask`, so a sampled token
//! that is not trained has none. A trial without a reward, or one that is kept for its group's sake, has `ok: false`:
//! trainers of such traces drop those. `rewards` holds what is trained on, as `reward`; all that the verifier said is in
//! `metrics`. What verifiers has no field for is in `info.rolltap`: group, branches, and of each entry of `calls`
//! its role and policy version.
//!
//! Read a line with `WireTrace.model_validate_json`. verifiers itself writes records with four decimals unless told
//! `float_decimals=None`; these are exact.

mod graph;
mod trace;

use std::io::Write;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};
use crate::export::shared::lines::{Lines, Tally};
use crate::export::shared::refusal::refuse_unfit;
use graph::Graph;
use trace::Trace;

/// Writes `Trace` records as of `verifiers` 0.4.0; see the module.
#[derive(Debug)]
pub struct VerifiersExporter<W: Write> {
    lines: Lines<W>,
    told: Tally,
}

impl<W: Write> VerifiersExporter<W> {
    /// Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { lines: Lines::new(out), told: Tally::default() }
    }
}

impl<W: Write> Exporter for VerifiersExporter<W> {
    /// # Errors
    /// Also refused: images, which a trace of tokens lacks, and branches that disagree about a call they share.
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

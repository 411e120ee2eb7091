//! Why branches started and what that cost: of one trial, and of all of them together.

use std::collections::BTreeMap;
use std::sync::Arc;

use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::call::Call;
use rolltap_rollout::forest::Forest;

use crate::api::{CauseFigures, Cost};
use crate::trial::Trial;

/// Why the branches of one trial started.
#[derive(Debug, Default)]
pub(crate) struct Causes {
    /// How many calls these figures are of.
    calls: usize,
    /// By the model as the agent named it in the branch's first call.
    by_model: BTreeMap<(String, BranchCause), Cost>,
}

impl Causes {
    /// Counts the branches that these calls form.
    pub(crate) fn of(calls: &[Arc<Call>]) -> Self {
        let forest = Forest::build(calls.iter().map(Arc::as_ref));
        let mut by_model: BTreeMap<_, Cost> = BTreeMap::new();
        for branch in forest.branches() {
            let model = forest.nodes().get(branch.start).map(|node| node.call.model.clone());
            let cost = by_model.entry((model.unwrap_or_default(), branch.cause)).or_default();
            cost.add(Cost { branches: 1, tokens: branch.reprefilled as u64 });
        }
        Self { calls: calls.len(), by_model }
    }

    /// Whether these are the figures of so many calls: a trial's calls only ever become more.
    pub(crate) fn is_of(&self, calls: usize) -> bool {
        self.calls == calls
    }

    pub(crate) fn by_cause(&self) -> BTreeMap<BranchCause, Cost> {
        let mut by_cause: BTreeMap<_, Cost> = BTreeMap::new();
        for ((_, cause), cost) in &self.by_model {
            by_cause.entry(*cause).or_default().add(*cost);
        }
        by_cause
    }
}

/// The figures of all these trials, by agent, model and cause.
pub(crate) fn figures(trials: &[Arc<Trial>]) -> Vec<CauseFigures> {
    let mut figures: BTreeMap<_, (Cost, u64)> = BTreeMap::new();
    for trial in trials {
        let facts = &trial.opened().facts;
        for ((model, cause), cost) in &trial.causes().by_model {
            // A call that names no model was still meant for one.
            let model =
                if model.is_empty() { facts.model.clone().unwrap_or_default() } else { model.clone() };
            let (sum, trials) = figures.entry((facts.agent.clone(), model, *cause)).or_default();
            sum.add(*cost);
            *trials += 1;
        }
    }
    let figures = figures.into_iter().map(|((agent, model, cause), (cost, trials))| CauseFigures {
        agent,
        model,
        cause,
        cost,
        trials,
    });
    figures.collect()
}

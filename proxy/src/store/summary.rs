//! Summarizes in numbers how a trial went, so that its status needs no read of its calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::call::{Call, CallStatus, Flaw};
use rolltap_rollout::forest::Forest;
use rolltap_rollout::roles::{cause_of, roles};
use serde::{Deserialize, Serialize};

use crate::api::Cost;

/// A summary of a trial, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The number of calls that ended.
    pub calls: u64,
    /// The number of calls whose whole answer arrived.
    pub complete: u64,
    /// The number of prompt tokens of all calls together.
    pub prompt_tokens: u64,
    /// The number of sampled tokens of all calls together.
    pub completion_tokens: u64,
    /// The number of complete calls with each flaw.
    #[serde(default)]
    pub flaws: BTreeMap<Flaw, u64>,
    /// The causes of the branches, by model.
    pub causes: Vec<CauseOfModel>,
}

/// A cause of branches of calls to one model, and their cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CauseOfModel {
    /// The model, as the agent named it in the branch's first call.
    pub model: String,
    /// The cause.
    pub cause: BranchCause,
    /// The number of branches and of tokens.
    #[serde(flatten)]
    pub cost: Cost,
}

impl Summary {
    /// Summarizes these calls.
    pub(crate) fn of(calls: &[Arc<Call>]) -> Self {
        let forest = Forest::build(calls.iter().map(Arc::as_ref));
        let mut causes: BTreeMap<_, Cost> = BTreeMap::new();
        let roles = roles(&forest);
        for branch in forest.branches() {
            // The first call of the branch names the model that the branch counts for.
            let model = forest.nodes().get(branch.start).map(|node| node.call.model.clone());
            let cost = causes.entry((model.unwrap_or_default(), cause_of(&branch, &roles))).or_default();
            cost.add(Cost { branches: 1, tokens: branch.reprefilled as u64 });
        }
        let mut flaws: BTreeMap<Flaw, u64> = BTreeMap::new();
        let complete = calls.iter().filter(|call| call.status == CallStatus::Complete);
        for &flaw in complete.flat_map(|call| &call.flaws) {
            *flaws.entry(flaw).or_default() += 1;
        }
        let causes = causes.into_iter().map(|((model, cause), cost)| CauseOfModel { model, cause, cost });
        Self {
            calls: calls.len() as u64,
            complete: calls.iter().filter(|call| call.status == CallStatus::Complete).count() as u64,
            prompt_tokens: calls.iter().map(|call| call.prompt_token_ids.len() as u64).sum(),
            completion_tokens: calls.iter().map(|call| completion_tokens(call)).sum(),
            flaws,
            causes: causes.collect(),
        }
    }

    /// Returns the causes, summed over all models.
    pub(crate) fn by_cause(&self) -> BTreeMap<BranchCause, Cost> {
        let mut by_cause: BTreeMap<_, Cost> = BTreeMap::new();
        for CauseOfModel { cause, cost, .. } in &self.causes {
            by_cause.entry(*cause).or_default().add(*cost);
        }
        by_cause
    }
}

/// Returns the number of tokens that a call sampled.
pub(crate) fn completion_tokens(call: &Call) -> u64 {
    call.choices.iter().map(|choice| choice.token_ids.len() as u64).sum()
}

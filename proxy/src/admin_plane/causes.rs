//! Sums the causes of branches and their cost over all trials.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::{CauseFigures, Cost};
use crate::store::{CauseOfModel, Store};
use crate::trial::Trial;

/// Returns the sums of these trials by agent, model and cause, sorted by these three.
pub(crate) async fn figures(trials: &[Arc<Trial>], store: &Store) -> Vec<CauseFigures> {
    let mut figures: BTreeMap<_, (Cost, u64)> = BTreeMap::new();
    for trial in trials {
        let facts = &trial.opened().facts;
        for CauseOfModel { model, cause, cost } in &trial.summary(store).await.causes {
            // A call that names no model counts for the model that the trial was opened with.
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

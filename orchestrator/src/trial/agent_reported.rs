//! Trials whose agents record tokens themselves.

use futures_util::TryStreamExt;
use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::agent_reported::compare;
use rolltap_rollout::call::Call;
use rolltap_rollout::rollout::TrialFacts;
use rolltap_rollout::training::TrainingPolicy;

use super::{Trial, TrialContext, TrialOutcome};
use crate::admin_client::AdminError;
use crate::agent_reported::{self, Returned};
use crate::failure::chain;

impl TrialOutcome {
    /// Returns the facts for rows from the agent's own record. The server that sampled these tokens is unknown.
    pub(crate) fn facts(&self, context: &TrialContext) -> TrialFacts {
        TrialFacts {
            trial_id: self.name.clone(),
            task_id: self.task_id.clone(),
            group_id: Some(self.group_id.clone()),
            group_size: Some(self.group_size),
            sample_index: self.sample_index,
            attempt: self.attempt,
            agent: Some(self.agent.spec.name().to_owned()),
            environment: Some(context.environment.to_string()),
            model: self.agent.model.clone(),
            logprobs_mode: "unknown".to_owned(),
            tokenizer_hash: None,
            vocab_size: None,
            training: TrainingPolicy::default(),
        }
    }
}

impl Trial<'_> {
    /// Reads the agent's own record of tokens, after its logs are downloaded. The record counts if the proxy captured
    /// nothing of the trial. Otherwise it is only compared with the capture.
    pub(super) async fn look_at_returned(&mut self, opened: &TrialOpened) {
        let Some(captured) = self.outcome.status.as_ref().map(|status| status.calls.total) else { return };
        let (dir, name) = (self.dir.clone(), self.plan.name.clone());
        let at = self.outcome.agent_finished_at();
        // A record may be large, and parsing it would block the runtime.
        let looked = tokio::task::spawn_blocking(move || agent_reported::look(&dir, &name, at)).await;
        let (found, problems) = looked.unwrap_or_else(|error| (None, vec![chain(&error)]));
        let mut told = Returned { problems, ..found.as_ref().map(Returned::of).unwrap_or_default() };
        match &found {
            None if told.problems.is_empty() => return,
            None => {}
            Some(_) if captured == 0 => told.taken = true,
            Some(found) => match self.captured(opened).await {
                Ok(calls) => told.comparison = Some(compare(&calls, &found.calls)),
                Err(error) => told.problems.push(format!("{} not compared: {}", found.file, chain(&error))),
            },
        }
        told.notes().into_iter().for_each(|note| self.log.line(format!("handed back: {note}")));
        self.outcome.returned = Some(told);
    }

    async fn captured(&self, opened: &TrialOpened) -> Result<Vec<Call>, AdminError> {
        self.context.admin.calls(opened).await?.try_collect().await
    }
}

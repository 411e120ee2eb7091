//! Opens trials. A trial has a name and a key, and is written to the store before a call uses it.

use std::sync::Arc;

use rolltap_rollout::ids::{InvalidId, TaskId, TrialId};
use rolltap_rollout::rollout::TrialFacts;
use rolltap_rollout::training::TrainingPolicy;
use tokio::task::JoinError;

use crate::api::{Limits, OpenTrial};
use crate::common::clock;
use crate::common::history::History;
use crate::common::redaction::Redaction;
use crate::common::to_the_end::to_the_end;
use crate::common::trial_key::TrialKey;
use crate::feed::{Feed, OpenRefusal};
use crate::prefix::ExactPrefix;
use crate::store::{self, Event, Opened, Store, StoreError};
use crate::trial::Trial;
use crate::trial::observer::Observers;
use crate::trial::registry::{NameTaken, Trials};
use crate::upstream::Pool;

/// The parts of the proxy that open, seal and reward a trial. Both planes use them.
#[derive(Clone, Debug)]
pub(crate) struct Lifecycle {
    pub(crate) trials: Arc<Trials>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) upstream: Arc<Pool>,
    pub(crate) store: Store,
    pub(crate) prefix: Arc<ExactPrefix>,
    /// The value of vLLM's `--logprobs-mode`, which its answers do not contain.
    pub(crate) logprobs_mode: String,
    /// The default for trials without a history mode of their own.
    pub(crate) history: History,
    /// The defaults for roles that a trial leaves out.
    pub(crate) training: TrainingPolicy,
    /// The defaults for limits that a trial leaves out.
    pub(crate) limits: Limits,
    /// The secrets that no record may contain.
    pub(crate) redaction: Arc<Redaction>,
    pub(crate) observers: Observers,
}

/// The reason why a trial is not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error(transparent)]
    NameTaken(#[from] NameTaken),
    #[error(transparent)]
    Refused(#[from] OpenRefusal),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Name(#[from] InvalidId),
    /// The runtime is shutting down, or the task panicked.
    #[error("it was cut off: {0}")]
    CutOff(#[from] JoinError),
}

impl Lifecycle {
    /// Opens a trial for the holder of `key`, and returns once it is durable. The opening ends also if its caller is
    /// dropped. `traceparent` names the span of the runner that opens the trial.
    pub(crate) async fn open(
        &self,
        asked: OpenTrial,
        key: TrialKey,
        traceparent: Option<String>,
    ) -> Result<Arc<Trial>, OpenError> {
        let lifecycle = self.clone();
        to_the_end(async move { lifecycle.open_durably(asked, &key, traceparent).await }).await
    }

    /// Returns the trial of a key that was opened before. Waits for an opening that is under way.
    pub(crate) async fn opened_before(&self, key: &TrialKey) -> Option<Arc<Trial>> {
        let trial = self.trials.by_key(key).ok()?;
        trial.opening_ended().await;
        Some(trial).filter(|trial| self.trials.has(trial))
    }

    async fn open_durably(
        &self,
        asked: OpenTrial,
        key: &TrialKey,
        traceparent: Option<String>,
    ) -> Result<Arc<Trial>, OpenError> {
        // The place is reserved first, so that a failing store rejects the opening before anything changes.
        let place = self.store.reserve().await?;
        let opened = Opened { traceparent, ..self.opened(asked, key).await };
        // Registered before the write, so that two trials of one name cannot both be written. The admin plane returns
        // the key only after the write.
        let trial = self.trials.add(Trial::new(opened.clone()))?;
        // Also dropped if the caller goes away. The event is then written nevertheless, and the trial stays.
        let _opening = trial.opening();
        if let Err(refused) = self.enter(&opened) {
            self.trials.remove(&trial);
            return Err(refused.into());
        }
        if let Err(error) = store::outcome(place.append(Event::Opened(Box::new(opened))).await) {
            // The opening is still in the store's queue. The store writes a withdrawal after it.
            self.feed.ledger().withdrawn(&trial.opened().facts.trial_id);
            self.trials.remove(&trial);
            return Err(error.into());
        }
        Ok(trial)
    }

    /// Checks and adds the trial under one lock, so that only one of two trials at one place of a group is opened.
    fn enter(&self, opened: &Opened) -> Result<(), OpenRefusal> {
        let mut ledger = self.feed.ledger();
        ledger.check(opened)?;
        ledger.opened(opened);
        Ok(())
    }

    /// Returns the trial of a key, and opens it if the key has none. This is meant for experiments.
    pub(crate) async fn implicit(&self, key: &TrialKey) -> Result<Arc<Trial>, OpenError> {
        loop {
            let trial = match self.trials.by_key(key) {
                Ok(trial) => trial,
                Err(_) => self.open_implicit(key).await?,
            };
            // Another first call may still write the opening, and a trial whose opening fails is withdrawn.
            trial.opening_ended().await;
            if self.trials.has(&trial) {
                return Ok(trial);
            }
        }
    }

    /// Opens a trial for a key that has none. Returns the trial of another first call if that one was sooner.
    async fn open_implicit(&self, key: &TrialKey) -> Result<Arc<Trial>, OpenError> {
        // The name is derived from the key, so that only one of two first calls opens the trial.
        let name = format!("implicit-{}", key.hash().short());
        let trial_id = TrialId::new(name)?;
        let asked =
            OpenTrial { trial_id: Some(trial_id.clone()), ..OpenTrial::of_task(TaskId::new("implicit")?) };
        match self.open_durably(asked, key, None).await {
            Err(OpenError::NameTaken(taken)) => self.trials.by_id(&trial_id).ok_or(taken.into()),
            opened => opened,
        }
    }

    async fn opened(&self, asked: OpenTrial, key: &TrialKey) -> Opened {
        let trial_id = asked.trial_id.unwrap_or_else(TrialId::generate);
        let card = self.upstream.model_card(&trial_id).await;
        Opened {
            facts: TrialFacts {
                trial_id,
                task_id: asked.task_id,
                group_id: asked.group_id,
                group_size: asked.group_size,
                sample_index: asked.sample_index,
                attempt: asked.attempt,
                agent: asked.agent,
                environment: asked.environment,
                model: asked.model,
                logprobs_mode: self.logprobs_mode.clone(),
                tokenizer_hash: self.prefix.tokenizer_hash(&card).await,
                vocab_size: card.vocab_size,
                training: self.training.with(&asked.training),
            },
            key: key.hash(),
            sampling: asked.sampling,
            seed: asked.seed,
            model_aliases: asked.model_aliases,
            history: asked.history.unwrap_or(self.history),
            limits: asked.limits.or(self.limits),
            reward_deadline: asked.reward_deadline,
            group_deadline: asked.group_deadline,
            hold_group: asked.hold_group,
            metadata: asked.metadata,
            at: clock::now(),
            traceparent: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::common::metrics::{FlawCounts, Metrics};
    use crate::feed::Ledger;
    use crate::render::RenderSettings;
    use crate::store::{OpenedStore, StoreSettings, StoreThread};
    use crate::upstream::PoolSettings;
    use crate::upstream::policy::Policy;

    fn lifecycle(data: &Path) -> (Lifecycle, StoreThread) {
        let OpenedStore { store, thread, .. } = Store::open(data, StoreSettings::default()).unwrap();
        let (policy, patience) = (Arc::new(Policy::restored(&[])), Duration::from_secs(1));
        let flaws = FlawCounts::default();
        let settings = PoolSettings::default();
        let upstream = Pool::start(Vec::new(), settings, patience, policy, store.clone(), flaws).unwrap();
        let metrics = Arc::new(Metrics::new());
        let prefix = ExactPrefix::start(
            RenderSettings::default(),
            Arc::clone(&upstream),
            store.clone(),
            Arc::clone(&metrics),
        )
        .unwrap();
        let lifecycle = Lifecycle {
            trials: Arc::default(),
            feed: Feed::new(Ledger::default()).0,
            upstream: Arc::clone(&upstream),
            store,
            prefix,
            logprobs_mode: "raw_logprobs".to_owned(),
            history: History::default(),
            training: TrainingPolicy::default(),
            limits: Limits::default(),
            redaction: Arc::default(),
            observers: Observers { metrics: metrics.calls(), upstream, tracer: None },
        };
        (lifecycle, thread)
    }

    #[tokio::test(start_paused = true)]
    async fn no_concurrent_first_call_gets_a_trial_that_is_withdrawn() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let (lifecycle, thread) = lifecycle(&data);
        let key = TrialKey::of_any("any").unwrap();
        // No segment can be created, so the opening fails.
        std::fs::remove_dir_all(&data).unwrap();
        let (first, second) = tokio::join!(lifecycle.implicit(&key), lifecycle.implicit(&key));
        assert!(matches!(first, Err(OpenError::Store(_))), "{first:?}");
        assert!(matches!(second, Err(OpenError::Store(_))), "{second:?}");

        std::fs::create_dir(&data).unwrap();
        while lifecycle.store.check().is_err() {
            tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(10))).await.unwrap();
        }
        let (first, second) = tokio::join!(lifecycle.implicit(&key), lifecycle.implicit(&key));
        assert!(Arc::ptr_eq(&first.unwrap(), &second.unwrap()), "one trial for both");
        drop(lifecycle);
        tokio::task::spawn_blocking(|| thread.finish()).await.unwrap().unwrap();
    }
}

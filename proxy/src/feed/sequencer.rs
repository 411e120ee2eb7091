//! Writes the consequences that are due: completions, closings, and rewards that missed their deadline.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rolltap_rollout::ids::{GroupId, TrialId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::schedule::Due;
use super::{Feed, Wake};
use crate::api::ClosingCause;
use crate::common::clock;
use crate::store::{self, Completion, Event, GroupClosed, Store, StoreError};
use crate::trial::registry::Trials;

/// The pause before a retry, after the store has failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The maximum pause between checks of the deadlines, because a clock that is set forward passes them early.
const LONGEST_NAP: Duration = Duration::from_secs(30);

/// The only component that gives numbers, so that no number is given twice.
#[derive(Debug)]
pub(crate) struct Sequencer {
    feed: Arc<Feed>,
    trials: Arc<Trials>,
    store: Store,
    /// The last number given. If its event could not be written, the number is not given again.
    given: u64,
}

impl Sequencer {
    /// Starts a sequencer that works until `stop`.
    pub(crate) fn start(
        feed: Arc<Feed>,
        trials: Arc<Trials>,
        store: Store,
        nudges: mpsc::Receiver<Wake>,
        stop: CancellationToken,
    ) {
        let given = feed.ledger().last();
        let clerk = Self { feed, trials, store, given };
        tokio::spawn(async move { stop.run_until_cancelled(clerk.run(nudges)).await });
    }

    async fn run(mut self, mut nudges: mpsc::Receiver<Wake>) {
        let mut waiting: Vec<Wake> = Vec::new();
        let mut is_behind = false;
        loop {
            let settled = self.settle().await;
            // Wake the waiters even on error: their own event is durable, and its consequences are retried.
            for waiting in waiting.drain(..) {
                let _ = waiting.send(());
            }
            if let Err(error) = &settled
                && !is_behind
            {
                tracing::warn!(%error, "complete trials wait until the store can write");
            }
            is_behind = settled.is_err();
            let nap = if is_behind { RETRY_AFTER } else { self.nap() };
            tokio::select! {
                nudges = nudges.recv_many(&mut waiting, super::WAITING) => if nudges == 0 { return },
                () = tokio::time::sleep(nap) => {}
            }
        }
    }

    /// Returns the pause until the next deadline.
    fn nap(&self) -> Duration {
        let Some(at) = self.feed.ledger().next_deadline() else { return LONGEST_NAP };
        let nap = at.duration_since(Timestamp::now());
        // The conversion fails if the deadline has passed.
        Duration::try_from(nap).map_or(Duration::ZERO, |nap| nap.min(LONGEST_NAP))
    }

    async fn settle(&mut self) -> Result<(), StoreError> {
        loop {
            let due = self.feed.ledger().due(clock::now());
            match due {
                Some(Due::Completions(trials)) => self.complete(trials).await?,
                Some(Due::Closing(group, cause)) => self.close(group, cause).await?,
                Some(Due::RewardMissed(trial)) => self.miss_reward(&trial).await?,
                None => return Ok(()),
            }
        }
    }

    /// Hands completions over together and in order. Each is applied to the ledger once it is written.
    async fn complete(&mut self, trials: Vec<TrialId>) -> Result<(), StoreError> {
        let at = clock::now();
        let mut handed_over = Vec::with_capacity(trials.len());
        let mut outcome = Ok(());
        for trial_id in trials {
            let place = match self.store.reserve().await {
                Ok(place) => place,
                Err(error) => {
                    outcome = Err(error);
                    // The completions before this one are already in the queue and are awaited below.
                    break;
                }
            };
            let completion = Completion { sequence: self.next_number(), at };
            // The results are awaited later, so that the completions share a write.
            let kept = place.append(Event::Completed { trial_id: trial_id.clone(), completion });
            handed_over.push((trial_id, completion, kept));
        }
        for (trial_id, completion, kept) in handed_over {
            match store::outcome(kept.await) {
                Ok(()) => self.feed.tell(|ledger| ledger.completed(&trial_id, completion)),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    async fn close(&mut self, group_id: GroupId, cause: ClosingCause) -> Result<(), StoreError> {
        let closed = GroupClosed { group_id, sequence: self.next_number(), cause, at: clock::now() };
        self.store.append(Event::GroupClosed(closed.clone())).await?;
        self.feed.tell(|ledger| ledger.closed(closed));
        Ok(())
    }

    async fn miss_reward(&self, trial_id: &TrialId) -> Result<(), StoreError> {
        if let Some(trial) = self.trials.by_id(trial_id) {
            // A reward that has arrived meanwhile counts.
            let reward = trial.reward_or_missed();
            self.store.append(Event::Rewarded { trial_id: trial_id.clone(), reward }).await?;
        }
        // Also for a trial that is no longer registered, because its deadline would stay due.
        self.feed.tell(|ledger| ledger.rewarded(trial_id));
        Ok(())
    }

    fn next_number(&mut self) -> u64 {
        self.given += 1;
        self.given
    }
}

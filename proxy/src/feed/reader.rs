//! One reading of the feed: waits until there is a trial, then builds a line per trial as the reader takes them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rolltap_rollout::export::pipeline::prepare::{PrepareOptions, PreparedTrial};
use rolltap_rollout::ids::RewardVersion;
use rolltap_rollout::rollout::Reward;
use rolltap_rollout::row::RolloutRow;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cursor::Cursor;
use super::ledger::Delivery;
use super::{CursorError, Feed, prepared, rows};
use crate::api::RolloutLine;
use crate::store::Store;
use crate::trial::Trial;
use crate::trial::registry::Trials;

/// The parameters of a reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) after: Option<String>,
    pub(crate) closed_groups: bool,
    pub(crate) superseded: bool,
    /// Whether trials may be missing because their retention ended before the reader had them.
    pub(crate) allow_gap: bool,
    /// The maximum number of lines. `None` for all lines that exist now.
    pub(crate) limit: Option<u64>,
    /// The rules to apply to rows. `None` returns the rows as they are.
    pub(crate) prepare: Option<PrepareOptions>,
    /// The version of rewards. `None` for those of the trials themselves.
    pub(crate) reward_version: Option<RewardVersion>,
    /// Whether the rows have the messages and tools of their calls.
    pub(crate) messages: bool,
}

/// Builds lines up to the last number at the beginning of the reading.
#[derive(Debug)]
pub(crate) struct Reader {
    feed: Arc<Feed>,
    trials: Arc<Trials>,
    store: Store,
    cursor: Cursor,
    superseded: bool,
    prepare: Option<PrepareOptions>,
    reward_version: Option<RewardVersion>,
    messages: bool,
    left: Option<u64>,
    until: u64,
    /// Forgotten trials up to this number may be missing.
    may_miss: u64,
}

/// The reason why a line cannot be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    #[error("the rows were not made: {0}")]
    Rows(#[from] tokio::task::JoinError),
    #[error("a row cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Reader {
    pub(crate) fn new(
        feed: Arc<Feed>,
        trials: Arc<Trials>,
        store: Store,
        asked: Reading,
    ) -> Result<Self, CursorError> {
        let ledger = feed.ledger();
        let (until, through) = (ledger.last(), ledger.forgotten_through());
        drop(ledger);
        let begin = Cursor::begin(asked.closed_groups);
        let from = asked.after.as_deref();
        let cursor = from.map_or(Ok(begin), |text| Cursor::read(text, asked.closed_groups, until))?;
        // A reader that begins gets the trials that still exist, so a gap is no error.
        let may_miss = if asked.allow_gap || cursor == begin { through } else { 0 };
        let Reading { superseded, limit: left, prepare, reward_version, messages, .. } = asked;
        let reader = Self {
            cursor,
            feed,
            trials,
            store,
            superseded,
            prepare,
            reward_version,
            messages,
            left,
            until,
            may_miss,
        };
        if reader.has_missed(through) { Err(CursorError::Gap { cursor, through }) } else { Ok(reader) }
    }

    /// Whether the reader has missed forgotten trials up to `through`.
    fn has_missed(&self, through: u64) -> bool {
        through > self.cursor.reached().max(self.may_miss)
    }

    /// Waits until there is a line, at most for `patience`, or until the proxy shuts down.
    pub(crate) async fn wait(&mut self, patience: Duration, end: &CancellationToken) {
        let mut last = self.feed.last.subscribe();
        let give_up = Instant::now().checked_add(patience);
        let given_up = async {
            match give_up {
                Some(give_up) => tokio::time::sleep_until(give_up).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(given_up);
        loop {
            // The number is marked as seen before the check, so that a later change wakes this task.
            self.until = *last.borrow_and_update();
            if self.next_delivery().is_some() {
                return;
            }
            tokio::select! {
                changed = last.changed() => if changed.is_err() { return },
                () = &mut given_up => return,
                () = end.cancelled() => return,
            }
        }
    }

    /// Builds the line of the next trial.
    pub(crate) async fn next_line(&mut self) -> Result<Option<Bytes>, LineError> {
        if self.left == Some(0) {
            return Ok(None);
        }
        let Some(delivery) = self.next_delivery() else { return Ok(None) };
        // The retention of the trial has just ended. The reader gets the error with its next request.
        let Some(trial) = self.trials.by_id(&delivery.trial) else { return Ok(None) };
        self.cursor = delivery.cursor;
        self.left = self.left.map(|left| left - 1);
        let reward = trial.reward_if_sealed(self.reward_version.as_ref()).unwrap_or_default();
        let rows = match self.prepare.clone() {
            None => {
                let rows = rows(&trial, &self.store, reward.clone(), delivery.superseded, self.messages);
                LineRows::AsCaptured(rows.await?)
            }
            Some(options) => {
                let rows = prepared(&trial, &self.store, reward.clone(), delivery.superseded, options);
                LineRows::Prepared(rows.await?)
            }
        };
        line(&trial, delivery, reward, rows).await.map(Some)
    }

    /// Returns the next trial. `None` also if trials after the cursor were forgotten since the reading began: the next
    /// request gets the error.
    fn next_delivery(&self) -> Option<Delivery> {
        let ledger = self.feed.ledger();
        if self.has_missed(ledger.forgotten_through()) {
            return None;
        }
        let next = ledger.next(self.cursor, self.superseded)?;
        // With the trials that arrive meanwhile, the answer to a slow reader would never end.
        Some(next).filter(|next| next.cursor.newest() <= self.until)
    }
}

/// The content of a line.
enum LineRows {
    AsCaptured(Vec<RolloutRow>),
    Prepared(PreparedTrial),
}

async fn line(trial: &Trial, delivery: Delivery, reward: Reward, rows: LineRows) -> Result<Bytes, LineError> {
    let (rows, prepared) = match rows {
        LineRows::AsCaptured(rows) => (Some(rows), None),
        LineRows::Prepared(prepared) => (None, Some(prepared)),
    };
    let facts = &trial.opened().facts;
    let line = RolloutLine {
        cursor: delivery.cursor.to_string(),
        trial_id: facts.trial_id.clone(),
        task_id: facts.task_id.clone(),
        group_id: facts.group_id.clone(),
        sample_index: facts.sample_index,
        attempt: facts.attempt,
        superseded: delivery.superseded,
        group_remaining: delivery.of_group.map(|of_group| of_group.remaining),
        late: delivery.of_group.map(|of_group| of_group.late),
        completed_at: delivery.completed_at,
        reward: reward.reward,
        rewards: reward.rewards,
        reward_valid: reward.valid,
        failure_cause: reward.failure_cause,
        reward_version: reward.version,
        suspicious: reward.suspicious,
        rows,
        prepared,
    };
    // A long line takes a while to serialize, so this runs outside the threads that serve agents.
    let written = tokio::task::spawn_blocking(move || {
        let mut line = serde_json::to_vec(&line)?;
        line.push(b'\n');
        Ok::<_, serde_json::Error>(line)
    });
    Ok(written.await??.into())
}

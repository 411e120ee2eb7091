//! Parts of rows: what is asked of a whole file before its rows are taken one by one. The rest is not read.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::export::formats::parquet::Column;
use crate::row::{CallSpan, RolloutRow};

/// A row, or a part of one, that can be read by itself from either format.
pub trait RowPart: Column + DeserializeOwned {
    /// Which trial the row is of.
    fn trial_id(&self) -> &str;
}

/// Which trial a row is of, and how that one went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowFacts {
    /// The trial that the row is of.
    pub trial_id: String,
    /// Harbor's task name.
    pub task_id: String,
    /// The samples that a trainer compares with this one.
    pub group_id: Option<String>,
    /// How many samples the group has when whole.
    pub group_size: Option<i32>,
    /// Which sample of its group, from 0.
    pub sample_index: i32,
    /// Which try at this sample, from 0.
    pub attempt: i32,
    /// A later attempt at the same sample counts instead.
    pub superseded: bool,
    /// The verifier's reward; none where there is none.
    pub reward: Option<f64>,
    /// Every number that the verifier gave, by name.
    pub rewards: BTreeMap<String, f64>,
    /// Whether the reward measures the agent.
    pub reward_valid: bool,
    /// Hash of the tokenizer, where it is known.
    pub tokenizer_hash: Option<String>,
}

/// How old a row's tokens are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowAge {
    /// The trial that the row is of.
    pub trial_id: String,
    /// 1 where the token can be trained.
    pub trainable_mask: Vec<u8>,
    /// The policy version that sampled the token; −1 where it was not sampled.
    pub token_version: Vec<i32>,
    /// The calls along the branch.
    pub calls: Vec<SpanAge>,
}

/// What of a call decides whether its tokens are trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpanAge {
    /// First sampled token.
    pub start: i32,
    /// One past the last sampled token.
    pub end: i32,
    /// The recorded logprob is not that of the distribution sampled from.
    pub constrained: bool,
}

impl RowPart for RolloutRow {
    fn trial_id(&self) -> &str {
        &self.trial_id
    }
}

impl RowPart for RowFacts {
    fn trial_id(&self) -> &str {
        &self.trial_id
    }
}

impl RowPart for RowAge {
    fn trial_id(&self) -> &str {
        &self.trial_id
    }
}

impl From<&RolloutRow> for RowFacts {
    fn from(row: &RolloutRow) -> Self {
        Self {
            trial_id: row.trial_id.clone(),
            task_id: row.task_id.clone(),
            group_id: row.group_id.clone(),
            group_size: row.group_size,
            sample_index: row.sample_index,
            attempt: row.attempt,
            superseded: row.superseded,
            reward: row.reward,
            rewards: row.rewards.clone(),
            reward_valid: row.reward_valid,
            tokenizer_hash: row.tokenizer_hash.clone(),
        }
    }
}

impl From<&RolloutRow> for RowAge {
    fn from(row: &RolloutRow) -> Self {
        Self {
            trial_id: row.trial_id.clone(),
            trainable_mask: row.trainable_mask.clone(),
            token_version: row.token_version.clone(),
            calls: row.calls.iter().map(SpanAge::from).collect(),
        }
    }
}

impl From<&CallSpan> for SpanAge {
    fn from(span: &CallSpan) -> Self {
        Self { start: span.start, end: span.end, constrained: span.constrained }
    }
}

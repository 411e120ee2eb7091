//! Parts of rows, for passes over a whole file before its rows are processed one by one. Other fields are not read.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::export::formats::parquet::Column;
use crate::row::{CallSpan, RolloutRow};

/// A row, or a part of one, that both file formats can read separately.
pub trait RowPart: Column + DeserializeOwned {
    /// Returns the trial of the row.
    fn trial_id(&self) -> &str;
}

/// The trial of a row, and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowFacts {
    /// The trial of the row.
    pub trial_id: String,
    /// Harbor's task name.
    pub task_id: String,
    /// The group of samples that a trainer compares.
    pub group_id: Option<String>,
    /// The number of samples in the complete group.
    pub group_size: Option<i32>,
    /// The index of the sample in its group, from 0.
    pub sample_index: i32,
    /// The number of the attempt at this sample, from 0.
    pub attempt: i32,
    /// Whether a later attempt at the same sample counts instead.
    pub superseded: bool,
    /// The verifier's reward, or `None` if there is none.
    pub reward: Option<f64>,
    /// Every number that the verifier gave, by name.
    pub rewards: BTreeMap<String, f64>,
    /// Whether the reward measures the agent.
    pub reward_valid: bool,
    /// Why the trial failed, if it failed.
    pub failure_cause: Option<String>,
    /// The reasons for which the trial is suspected of cheating. `None` if it was not examined.
    pub suspicious: Option<Vec<String>>,
    /// The hash of the tokenizer, if known.
    pub tokenizer_hash: Option<String>,
}

/// The age of a row's tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowAge {
    /// The trial of the row.
    pub trial_id: String,
    /// 1 if the token may be trained.
    pub trainable_mask: Vec<u8>,
    /// The policy version that sampled the token, or −1 if it was not sampled.
    pub token_version: Vec<i32>,
    /// The calls along the branch.
    pub calls: Vec<SpanAge>,
}

/// The properties of a call that decide whether its tokens are trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpanAge {
    /// The index of the first sampled token.
    pub start: i32,
    /// One past the index of the last sampled token.
    pub end: i32,
    /// Whether the recorded logprob differs from that of the distribution that was sampled from.
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

impl RowFacts {
    /// The number of samples in the complete group, if it is known and not negative.
    pub(crate) fn samples_of_group(&self) -> Option<usize> {
        self.group_size.and_then(|size| usize::try_from(size).ok())
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
            failure_cause: row.failure_cause.clone(),
            suspicious: row.suspicious.clone(),
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

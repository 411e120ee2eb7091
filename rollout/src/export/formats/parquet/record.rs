//! The columns of `rollout/1`, in the order of the file. A new column needs a new field of the row and one line here.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{ArrowError, DataType, Fields};
use jiff::Timestamp;

use super::column::{Column, Mismatch, cell, downcast, field, not_null};
use crate::export::pipeline::projection::{RowAge, RowFacts, SpanAge};
use crate::row::{CallSpan, RolloutRow};

/// Maps a Rust struct to an Arrow struct. A missing field is a compile error.
macro_rules! record {
    ($record:ident { $($name:ident: $column:ty),* $(,)? }) => {
        impl Column for $record {
            fn data_type() -> DataType {
                DataType::Struct(Fields::from(vec![$(field::<$column>(stringify!($name)),)*]))
            }

            fn to_array<'a>(values: impl Iterator<Item = &'a Self>) -> Result<ArrayRef, ArrowError> {
                let records: Vec<&Self> = values.collect();
                let fields = Fields::from(vec![$(field::<$column>(stringify!($name)),)*]);
                let columns =
                    vec![$(<$column as Column>::to_array(records.iter().map(|record| &record.$name))?,)*];
                Ok(Arc::new(StructArray::try_new_with_length(fields, columns, None, records.len())?))
            }

            fn from_array(array: &dyn Array, index: usize) -> Result<Self, Mismatch> {
                let record: &StructArray = downcast(array)?;
                not_null(array, index, Self::data_type)?;
                Ok(Self { $($name: cell::<$column>(record, stringify!($name), index)?,)* })
            }
        }
    };
}

record!(RolloutRow {
    schema_version: String,
    trial_id: String,
    group_id: Option<String>,
    group_size: Option<i32>,
    sample_index: i32,
    attempt: i32,
    superseded: bool,
    task_id: String,
    environment: Option<String>,
    branch_index: i32,
    num_branches: i32,
    is_last_branch: bool,
    branch_cause: String,
    branch_reprefilled: Option<i32>,
    token_ids: Vec<i32>,
    sampled_mask: Vec<u8>,
    trainable_mask: Vec<u8>,
    loss_mask: Vec<u8>,
    logprobs: Vec<f32>,
    token_version: Vec<i32>,
    version_labels: BTreeMap<String, String>,
    prompt_len: i32,
    reward: Option<f64>,
    advantage: Option<f64>,
    rewards: BTreeMap<String, f64>,
    reward_valid: bool,
    failure_cause: Option<String>,
    reward_version: Option<String>,
    suspicious: Option<Vec<String>>,
    is_truncated: bool,
    stop_reason: Option<String>,
    status: String,
    model: String,
    tokenizer_hash: Option<String>,
    vocab_size: Option<i32>,
    logprobs_mode: String,
    has_media: bool,
    origin: Option<String>,
    calls: Vec<CallSpan>,
});

record!(CallSpan {
    call_id: String,
    choice_index: i32,
    parent_call_id: Option<String>,
    role: String,
    model: Option<String>,
    prompt_len: i32,
    start: i32,
    end: i32,
    finish_reason: Option<String>,
    version: i32,
    sampled_at: Timestamp,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    constrained: bool,
    sampling: String,
    messages: Option<String>,
});

// Parts of a row: only these columns of a file are read.

record!(RowFacts {
    trial_id: String,
    task_id: String,
    group_id: Option<String>,
    group_size: Option<i32>,
    sample_index: i32,
    attempt: i32,
    superseded: bool,
    reward: Option<f64>,
    rewards: BTreeMap<String, f64>,
    reward_valid: bool,
    failure_cause: Option<String>,
    suspicious: Option<Vec<String>>,
    tokenizer_hash: Option<String>,
});

record!(RowAge {
    trial_id: String,
    trainable_mask: Vec<u8>,
    token_version: Vec<i32>,
    calls: Vec<SpanAge>,
});

record!(SpanAge { start: i32, end: i32, constrained: bool });

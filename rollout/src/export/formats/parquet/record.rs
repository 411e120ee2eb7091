//! The columns of `rollout/1`, in the order of the file. A new column needs a new field of the row and one line here.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parquet::basic::Repetition;
use parquet::errors::ParquetError;
use parquet::schema::types::Type;

use super::column::{Column, assemble_field, not_null, shred_field};
use super::leaf::Leaf;
use super::mismatch::Mismatch;
use super::node::Node;
use super::schema;
use super::shredded::{LeafBuffer, Place, Unrepresentable};
use crate::export::pipeline::projection::{RowAge, RowFacts, SpanAge};
use crate::row::{CallSpan, RolloutRow};

/// Maps a Rust struct to a group of columns. A missing field is a compile error.
macro_rules! record {
    ($record:ident { $($name:ident: $column:ty),* $(,)? }) => {
        impl Column for $record {
            const LEAVES: usize = 0 $(+ <$column as Column>::LEAVES)*;

            fn schema_of(name: &str, repetition: Repetition) -> Result<Type, ParquetError> {
                let fields = vec![$(<$column as Column>::schema(stringify!($name))?,)*];
                schema::group(name, repetition, None, fields)
            }

            fn shred(&self, at: Place, leaves: &mut [LeafBuffer]) -> Result<(), Unrepresentable> {
                $(let leaves = shred_field(&self.$name, at, leaves)?;)*
                debug_assert!(leaves.is_empty(), "each leaf belongs to a field");
                Ok(())
            }

            fn assemble(node: &Node, leaves: &mut [Leaf]) -> Result<Self, Mismatch> {
                not_null::<Self>(node, leaves)?;
                // The fields are evaluated in the order of this list, which is that of the node's children.
                let mut children = node.children();
                Ok(Self { $($name: assemble_field::<$column>(children.next().flatten(), stringify!($name), leaves)?,)* })
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
    tools: Option<String>,
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

//! One module per file format that an export writes.

pub mod agent_lightning;
pub mod areal;
pub mod art;
pub mod atif;
pub mod atropos;
pub mod harbor;
pub mod jsonl;
pub mod labels;
pub mod messages;
pub mod nemo_rl;
pub mod openrlhf;
pub mod parquet;
pub mod pipelinerl;
pub mod preference;
pub mod prime_rl;
pub mod rllm;
pub mod roll;
pub mod skyrl;
pub mod slime;
pub mod tinker;
pub mod torchforge;
pub mod trl;
pub mod verifiers;
pub mod verl;
pub mod whole_rows;

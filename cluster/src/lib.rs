//! What several rolltap nodes share. NATS JetStream has a key-value bucket with the lease of each shard, and a
//! stream per shard with its replicated log. Closed segments of shards are in object storage ([`objects`]).
//!
//! A node [`connect`]s, waits for the [`lease`] of a shard, reads the shard's [`log`], and fences the previous holder with
//! the first message of its own epoch. Then a [`publisher`] appends to the log for as long as the lease is held.
//!
//! All shards give policy versions the same numbers ([`versions`]). Trials for workers on many hosts are in a queue ([`work`]).
//!
//! This crate knows no captures. The log is a sequence of bytes that belong at an offset of a numbered segment.

mod cluster;
pub mod lease;
pub mod log;
mod message;
pub mod objects;
pub mod publisher;
pub mod versions;
pub mod work;

pub use async_nats::ServerAddr;
pub use cluster::{
    Cluster, ClusterError, ClusterName, ClusterSettings, InvalidClusterName, Member, SHARDS, connect,
    connect_to_existing,
};
pub use message::{ForeignMessage, WriterId};

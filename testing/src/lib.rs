//! Shared test support of all crates: time limits that fit the machine ([`limit`]), waits for conditions ([`until`],
//! [`eventually`]), sample sizes that fit the tier ([`sample`]), HTTP clients ([`http_client`]), certificates
//! ([`TestAuthority`]), ports ([`free_port`]), NATS servers ([`NatsServers`]), S3 servers ([`S3Server`]), networks that fail
//! ([`Relay`]), rows ([`rollout_row`]) and fuzz targets ([`fuzz!`]). `scripts/test` sets the environment variables that limits
//! and sample sizes read. Without them a test runs as on a quiet machine, in the default tier.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that fails panics"
)]

mod certificates;
pub mod fuzz;
mod generated;
mod http;
mod nats;
mod port;
mod relay;
mod rows;
mod s3;
mod slowness;
mod tier;
mod wait;

pub use certificates::{TestAuthority, TestCertificate};
pub use generated::is_current;
pub use http::{client_builder, client_trusting, get, http_client, tls_trusting};
pub use nats::{NatsDisk, NatsServers, NatsSetup};
pub use port::free_port;
pub use relay::{Cut, Relay};
pub use rows::{PROMPT, rollout_row, write_jsonl};
pub use s3::S3Server;
pub use slowness::limit;
pub use tier::{is_long, sample};
pub use wait::{eventually, until};

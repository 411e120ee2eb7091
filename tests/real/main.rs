//! The real tier: real vLLM, real Docker, a real client. `./scripts/test` provides them and runs these tests.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails panics"
)]

mod disconnect;
mod docker_job;
mod in_container;
mod interrupted;
mod official_client;
mod policy;
mod program;
mod stage;
mod transparency;
mod witness;

//! The real tier: real vLLM, real Docker, a real client. `./scripts/test` provides them and runs these tests.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails panics"
)]

mod asked;
mod claude_code;
mod clean;
mod clients;
mod codex;
mod compose;
mod conversation;
mod disconnect;
mod docker_job;
mod doctor;
mod exact_prefix;
mod faults;
mod gateways;
mod gemini;
mod gym;
mod harbor;
mod harbor_jobs;
mod harbor_options;
mod harbor_tasks;
mod harness;
mod hostile;
mod image;
mod in_container;
mod installed_agents;
mod integrity;
mod interrupted;
mod killed_jobs;
mod kubernetes;
mod learn;
mod learn_trainers;
mod litellm;
mod messages;
mod mini_swe_agent;
mod official_client;
mod own_tls;
mod policy;
mod program;
mod prometheus;
mod python_terminals;
mod recompute_check;
mod recomputed;
mod recording_upstream;
mod regrade;
mod release;
mod responses;
mod reward_table;
mod service;
mod sessions;
mod side_by_side;
mod systemd;
mod terminal_image;
mod terminals;
mod terminus;
mod trainers;
mod transparency;
mod viewer;

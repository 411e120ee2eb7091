//! Black-box tests of the binary: a user's commands and their results. They need no Docker, no GPU and no network.

#[cfg(test)]
mod cli {
    #[path = "../../proxy/tests/it/collector.rs"]
    #[expect(dead_code, reason = "the tests of the proxy use all of it")]
    mod collector;
    pub(crate) mod program;

    mod admin_token;
    mod agent;
    mod agents;
    mod auto_concurrency;
    mod demo;
    mod doctor;
    mod empty_captures;
    mod environments;
    mod export;
    mod export_groups;
    mod export_of_a_store;
    mod export_of_messages;
    mod full_disk;
    mod harbor_options;
    mod harbor_tasks;
    mod health;
    mod help;
    mod integrity;
    mod jobs;
    mod large_jobs;
    mod lifecycle;
    mod named_rewards;
    mod networks;
    mod object_storage;
    mod observability;
    mod pages;
    mod plain_logs;
    mod proxy_killed;
    mod recompute;
    mod regrade;
    mod resume;
    mod returned;
    mod rollouts;
    mod run;
    mod screens;
    mod secrets;
    mod servers;
    mod service;
    mod shells;
    #[path = "../crash/small_disk.rs"]
    mod small_disk;
    mod tasks;
    mod usage;
    mod version;
    mod wrong_values;
}

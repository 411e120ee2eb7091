//! Black-box tests of the binary: what a user types and what comes of it. No Docker, no GPU, no network.

#[cfg(test)]
mod cli {
    pub(crate) mod program;

    mod agent;
    mod agents;
    mod demo;
    mod empty_captures;
    mod environments;
    mod export;
    mod export_of_a_store;
    mod full_disk;
    mod help;
    mod jobs;
    mod lifecycle;
    mod proxy_killed;
    mod resume;
    mod returned;
    mod rollouts;
    mod run;
    mod secrets;
    mod servers;
    #[path = "../crash/small_disk.rs"]
    mod small_disk;
    mod usage;
}

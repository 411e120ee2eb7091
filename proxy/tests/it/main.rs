//! The proxy from outside: a real one on free ports, in front of a simulated upstream, called as agents and runners do.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that fails panics")]

mod admin_guard;
mod admin_tokens;
mod answers;
mod asked;
mod audit;
mod bad_request;
mod bad_upstream;
mod browsers;
mod cache_admission;
mod causes;
mod collector;
mod conversation;
mod durability;
mod endings;
mod enforced;
mod eviction;
mod exact_prefix;
mod feed;
mod floods;
mod gemini;
mod groups;
mod harness;
mod identity;
mod messages;
mod model_server;
mod other_trials;
mod own_reads;
mod passing;
mod policy;
mod prepared;
mod public_url;
mod raw_upstream;
mod reachable_paths;
mod replicas;
mod responses;
mod retries;
mod reward_versions;
mod rewards;
mod roles;
mod sessions;
mod slow_readers;
mod steering;
mod tls;
mod traces;

//! Types and small tools that all modules of the proxy may use. They import nothing from the other modules.

pub(crate) mod clock;
pub(crate) mod file_version;
pub(crate) mod history;
pub(crate) mod in_words;
pub(crate) mod log_limit;
pub(crate) mod metrics;
pub(crate) mod model_aliases;
pub(crate) mod redaction;
pub(crate) mod refusal_counts;
pub(crate) mod samples;
pub(crate) mod seconds;
pub(crate) mod shard;
pub mod suggest;
pub(crate) mod tls;
pub(crate) mod to_the_end;
pub(crate) mod trial_key;

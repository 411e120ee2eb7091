//! Small tools that every module of the orchestrator may use. They import nothing of the orchestrator.

pub mod activity;
pub(crate) mod cache;
pub mod cancellation;
pub(crate) mod new_file;
pub(crate) mod plain;
pub(crate) mod secret_env;
pub mod shell;
pub(crate) mod shown_path;
pub mod style;
pub mod suggest;
pub mod terminal_size;
pub mod words;

//! Web pages over jobs and captures: `rolltap view`.
//!
//! [`collection`] reads job directories, data directories and rollout files, and never writes. `figures` computes what
//! a page shows, `page` writes HTML, and [`server`] answers requests. `layers.toml` lists the modules from top to bottom.

pub mod bundle;
pub mod server;

mod asset;
pub mod collection;
mod figures;
mod filter;
mod page;
mod search;
mod text;
mod tokenizer;

pub use bundle::{BundleError, Bundled, write_bundle};
pub use collection::{Collection, OpenError};
pub use server::{Server, ServerError, pages_below};
pub use text::trial_text;
pub use tokenizer::{TokenizerError, read_tokenizer};

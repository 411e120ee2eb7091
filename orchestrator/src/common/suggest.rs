//! Suggestions for mistyped names.

pub use rolltap_proxy::suggest::{did_you_mean, nearest};

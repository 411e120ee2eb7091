//! The agent against a scripted model over HTTP and a real shell on a real pseudo-terminal.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod harness;
mod long_conversations;
mod scripted;
mod trajectory;
mod typing;
mod work;

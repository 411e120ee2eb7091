//! The wire formats that agents speak.

pub(crate) mod chat;
pub(crate) mod error;
pub(crate) mod unsendable;

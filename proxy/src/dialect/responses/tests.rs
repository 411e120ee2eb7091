//! Tests requests as agents send them, and answers as their clients read them.

mod answers;
mod requests;
mod streams;

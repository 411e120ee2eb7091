//! Compares captured logprobs with the logprobs that a server computes later for the same tokens.
//!
//! [`Comparable`] selects the tokens of a row whose captured logprob can be compared, and counts the others by
//! [`Reason`]. [`prompt_logprobs`] reads the server's answer, and [`Comparison`] sums the differences per [`Policy`].
//! Requests are sent elsewhere: nothing here does I/O.

mod answer;
mod comparable;
mod comparison;
mod line;
mod policy;

pub use answer::{AnswerError, prompt_logprobs};
pub use comparable::{Comparable, ComparedToken, LeftOut, Reason};
pub use comparison::{Beyond, Bounds, Comparison, Difference, Figures};
pub use line::{LineError, RECOMPUTED_SCHEMA, RecomputedRow};
pub use policy::Policy;

#[cfg(test)]
mod tests;

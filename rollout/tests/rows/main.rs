//! Rollout rows from the outside: their file formats bring back what was written, and the checks find what is wrong.

// `cfg(test)` tells clippy that helpers here may unwrap and index as the tests do.
#[cfg(test)]
mod invariants;
#[cfg(test)]
mod jsonl;
#[cfg(test)]
mod parquet;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod trials;

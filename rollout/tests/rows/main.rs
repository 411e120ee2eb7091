//! Rollout rows from the outside: their file formats preserve all values, and the checks find breaches.

// `cfg(test)` makes clippy allow unwraps and indexing in the helpers here, as in the tests.
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

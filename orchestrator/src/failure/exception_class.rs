//! Names of exception classes of another program, of which there are few, kept for as long as this process lives.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// So many names are kept at most: Harbor has some eighty classes.
const MOST: usize = 512;
/// Longer names are no class's.
const LONGEST: usize = 80;
/// What any other is called.
const OTHER: &str = "Exception";

static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// The name of an exception's class.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ExceptionClass(&'static str);

impl ExceptionClass {
    /// The class of this name. What can be no name, and what comes after very many, is `Exception`.
    pub fn of(name: &str) -> Self {
        let is_name = !name.is_empty()
            && name.len() <= LONGEST
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(name) {
            return Self(known);
        }
        if !is_name || known.len() >= MOST {
            return Self(OTHER);
        }
        let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
        known.insert(kept);
        Self(kept)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for ExceptionClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once_and_what_is_none_is_not() {
        let first = ExceptionClass::of("HarborIsClosedError");
        let again = ExceptionClass::of(&String::from("HarborIsClosedError"));
        assert!(std::ptr::eq(first.name(), again.name()));
        for wrong in ["", "a b", "x\n", &"x".repeat(LONGEST + 1)] {
            assert_eq!(ExceptionClass::of(wrong).name(), OTHER);
        }
    }
}

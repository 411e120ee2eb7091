//! Names of another program's exception classes. There are few, so they stay in memory for the life of the process.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The most names that are stored. Harbor has about eighty classes.
const MOST: usize = 512;
/// The most bytes of a name. No class has a longer name.
const LONGEST: usize = 80;
/// The name for everything that cannot be stored.
const OTHER: &str = "Exception";

static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// The name of an exception class.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ExceptionClass(&'static str);

impl ExceptionClass {
    /// Returns the class of this name. The result is `Exception` if the text cannot be a class name, or if 512 names
    /// are stored already.
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
        // The leak is bounded: at most `MOST` names of at most `LONGEST` bytes.
        let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
        known.insert(kept);
        Self(kept)
    }

    /// Returns the name.
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

//! The prompts with which trials begin.

use std::collections::{HashMap, VecDeque};

/// The number of kinds that are known. Beyond it, the earliest kind is forgotten.
const KINDS: usize = 4096;

/// The lengths of first prompts, in tokens. A kind is a task with an agent, whose trials begin with the same prompt.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    known: HashMap<String, u64>,
    /// The kinds in the order in which they became known.
    order: VecDeque<String>,
    sum: u64,
}

impl Prefixes {
    /// Records the first prompt of a trial, if it is the first of its kind.
    pub(super) fn begun(&mut self, kind: &str, prompt: u64) {
        if self.known.contains_key(kind) {
            return;
        }
        if self.order.len() >= KINDS
            && let Some(earliest) = self.order.pop_front()
        {
            self.sum -= self.known.remove(&earliest).unwrap_or(0);
        }
        // A prompt is never that long.
        let prompt = prompt.min(u64::MAX / (2 * KINDS as u64));
        self.sum += prompt;
        self.order.push_back(kind.to_owned());
        self.known.insert(kind.to_owned(), prompt);
    }

    /// Returns the length of the prompt with which trials of this kind begin: its own, or the mean of the others.
    pub(super) fn of(&self, kind: &str) -> u64 {
        self.known.get(kind).copied().or_else(|| self.sum.checked_div(self.known.len() as u64)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_prompt_of_a_kind_is_its_prefix() {
        let mut prefixes = Prefixes::default();
        assert_eq!(prefixes.of("a"), 0);
        prefixes.begun("a", 300);
        prefixes.begun("a", 999);
        prefixes.begun("b", 500);
        assert_eq!((prefixes.of("a"), prefixes.of("b"), prefixes.of("c")), (300, 500, 400));
    }

    #[test]
    fn the_number_of_kinds_is_bounded() {
        let mut prefixes = Prefixes::default();
        for number in 0..2 * KINDS as u64 {
            prefixes.begun(&number.to_string(), u64::MAX);
        }
        assert_eq!((prefixes.known.len(), prefixes.order.len()), (KINDS, KINDS));
    }
}

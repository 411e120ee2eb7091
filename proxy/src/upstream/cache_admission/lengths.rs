//! The lengths of ended conversations, and what they let expect of the open ones.

use std::collections::{HashMap, VecDeque};

/// The number of lengths per kind that count. Later ones displace earlier ones, because the policy changes.
const OF_KIND: usize = 32;
/// The number of lengths of all kinds that count.
const OF_ALL: usize = 256;
/// The number of lengths that a kind needs before its own decide.
const ENOUGH: usize = 3;
/// The number of kinds that are known. Beyond it, the earliest kind is forgotten.
const KINDS: usize = 4096;

/// The lengths of ended trials. A kind is a task with an agent, whose trials begin with the same prompt.
///
/// The own length of a trial is the length of its conversation without that prompt, in tokens.
#[derive(Debug, Default)]
pub(super) struct Lengths {
    kinds: HashMap<String, Kind>,
    /// The kinds in the order in which they became known.
    order: VecDeque<String>,
    all: Recent,
    prefixes: Recent,
}

#[derive(Debug, Default)]
struct Kind {
    prefix: Option<u64>,
    ended: Recent,
}

/// The latest lengths.
#[derive(Debug, Default)]
struct Recent(VecDeque<u64>);

impl Recent {
    fn add(&mut self, length: u64, most: usize) {
        if self.0.len() >= most {
            self.0.pop_front();
        }
        self.0.push_back(length);
    }

    /// Returns the mean of the lengths above this one. `None` if there are none.
    fn mean_above(&self, length: u64) -> Option<u64> {
        let above = || self.0.iter().filter(|&&other| other > length);
        let sum = above().fold(0, |sum: u64, &other| sum.saturating_add(other));
        sum.checked_div(above().count() as u64)
    }
}

impl Lengths {
    /// Notes the first prompt of a trial.
    pub(super) fn begun(&mut self, kind: &str, prompt: u64) {
        let known = self.kind(kind);
        if known.prefix.is_none() {
            known.prefix = Some(prompt);
            self.prefixes.add(prompt, OF_ALL);
        }
    }

    /// Notes the own length of a trial that ended.
    pub(super) fn ended(&mut self, kind: &str, own: u64) {
        self.kind(kind).ended.add(own, OF_KIND);
        self.all.add(own, OF_ALL);
    }

    fn kind(&mut self, kind: &str) -> &mut Kind {
        if !self.kinds.contains_key(kind) {
            if self.order.len() >= KINDS
                && let Some(earliest) = self.order.pop_front()
            {
                self.kinds.remove(&earliest);
            }
            self.order.push_back(kind.to_owned());
        }
        self.kinds.entry(kind.to_owned()).or_default()
    }

    /// Returns the length of the prompt with which trials of this kind begin: its own, or that of other kinds.
    pub(super) fn prefix(&self, kind: &str) -> u64 {
        let own = self.kinds.get(kind).and_then(|kind| kind.prefix);
        own.or_else(|| self.prefixes.mean_above(0)).unwrap_or(0)
    }

    /// Returns the own length that a trial of this kind is expected to reach, whose own length is `now`. `None` if no
    /// trial has ended.
    pub(super) fn expected(&self, kind: &str, now: u64) -> Option<u64> {
        let own = self.kinds.get(kind).map(|kind| &kind.ended).filter(|ended| ended.0.len() >= ENOUGH);
        let known = own.unwrap_or(&self.all);
        if known.0.is_empty() {
            return None;
        }
        // A trial that is longer than all others may be at its end or not.
        Some(known.mean_above(now).unwrap_or(now.saturating_add(now / 4)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_expected_to_become_as_long_as_the_longer_ones_of_its_kind() {
        let mut lengths = Lengths::default();
        assert_eq!(lengths.expected("a", 0), None);
        lengths.ended("b", 1000);
        assert_eq!((lengths.expected("a", 0), lengths.expected("a", 1200)), (Some(1000), Some(1500)));
        for own in [100, 200, 300] {
            lengths.ended("a", own);
        }
        assert_eq!((lengths.expected("a", 0), lengths.expected("a", 150)), (Some(200), Some(250)));
        assert_eq!(lengths.expected("b", 0), Some(400), "one length of a kind is not enough");
    }

    #[test]
    fn the_first_prompt_of_a_kind_is_its_prefix() {
        let mut lengths = Lengths::default();
        assert_eq!(lengths.prefix("a"), 0);
        lengths.begun("a", 300);
        lengths.begun("a", 999);
        lengths.begun("b", 500);
        assert_eq!((lengths.prefix("a"), lengths.prefix("b"), lengths.prefix("c")), (300, 500, 400));
    }

    #[test]
    fn the_number_of_kinds_and_lengths_is_bounded() {
        let mut lengths = Lengths::default();
        for number in 0..2 * KINDS as u64 {
            lengths.ended(&number.to_string(), number);
        }
        assert_eq!((lengths.kinds.len(), lengths.order.len(), lengths.all.0.len()), (KINDS, KINDS, OF_ALL));
    }
}

//! The first pass over an export's input: which trials there are, how they went and how old they are. No tokens are kept.

use std::collections::{HashMap, HashSet};

use super::mask::{self, BranchAge};
use super::projection::{RowAge, RowFacts};
use super::rules::{OnFork, Rules};

/// What is known of an export's input before any of it is written.
#[derive(Debug)]
pub struct Survey {
    pub(crate) rules: Rules,
    /// In the order of the input.
    pub(crate) trials: Vec<Seen>,
    by_id: HashMap<String, usize>,
    /// Groups that take no further trial.
    pub(crate) closed: HashSet<String>,
    /// The newest policy version that sampled anything.
    pub(crate) newest: Option<i32>,
}

/// A trial as the first pass knows it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) facts: RowFacts,
    /// A trial that sampled nothing is there, and there is nothing of it to export.
    pub(crate) has_rows: bool,
    /// The oldest policy version of what would be trained, where ages were asked for.
    pub(crate) oldest: Option<i32>,
}

/// The input cannot be exported from.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "trial {0} is in the input twice, with another in between; what comes of two sources has to be told apart by trial_id"
)]
pub struct SeenTwice(pub String);

impl Survey {
    /// Of an input of which nothing was seen yet.
    pub fn new(rules: Rules) -> Self {
        Self { rules, trials: Vec::new(), by_id: HashMap::new(), closed: HashSet::new(), newest: None }
    }

    /// Whether [`Self::age`] has to be told of each trial: it takes a look at every token.
    pub fn asks_for_ages(&self) -> bool {
        self.rules.staleness.is_some()
    }

    /// How many trials were seen.
    pub fn len(&self) -> usize {
        self.trials.len()
    }

    /// Whether this trial was seen.
    pub fn has(&self, trial_id: &str) -> bool {
        self.by_id.contains_key(trial_id)
    }

    /// Whether no trial was seen.
    pub fn is_empty(&self) -> bool {
        self.trials.is_empty()
    }

    /// Takes a trial in, by the first of its rows.
    ///
    /// # Errors
    /// It was there before.
    pub fn trial(&mut self, facts: RowFacts) -> Result<(), SeenTwice> {
        self.add(facts, true)
    }

    /// Takes a trial in that sampled nothing and so has no rows.
    ///
    /// # Errors
    /// It was there before.
    pub fn trial_without_rows(&mut self, facts: RowFacts) -> Result<(), SeenTwice> {
        self.add(facts, false)
    }

    /// Whether it matters which groups are closed: some group has not as many trials as it has to have.
    pub fn asks_for_closed_groups(&self) -> bool {
        let mut groups: HashMap<&str, (HashSet<i32>, Option<usize>)> = HashMap::new();
        for Seen { facts, .. } in self.trials.iter().filter(|seen| !seen.facts.superseded) {
            let Some(group_id) = facts.group_id.as_deref() else { continue };
            let (samples, size) = groups.entry(group_id).or_default();
            samples.insert(facts.sample_index);
            *size = facts.group_size.and_then(|size| usize::try_from(size).ok());
        }
        let is_open =
            |(samples, size): &(HashSet<i32>, Option<usize>)| size.is_none_or(|size| samples.len() < size);
        !self.rules.open_groups && groups.values().any(is_open)
    }

    fn add(&mut self, facts: RowFacts, has_rows: bool) -> Result<(), SeenTwice> {
        if self.by_id.insert(facts.trial_id.clone(), self.trials.len()).is_some() {
            return Err(SeenTwice(facts.trial_id));
        }
        self.trials.push(Seen { facts, has_rows, oldest: None });
        Ok(())
    }

    /// No further trial of this group will come.
    pub fn group_is_closed(&mut self, group_id: String) {
        self.closed.insert(group_id);
    }

    /// Takes in how old a trial's tokens are: all of its rows together.
    pub fn age(&mut self, rows: &[RowAge]) {
        let Some(trial) = rows.first().and_then(|row| self.by_id.get(&row.trial_id)) else { return };
        let Some(trial) = self.trials.get_mut(*trial) else { return };
        let branches: Vec<_> =
            rows.iter().map(|row| BranchAge::of(row, self.rules.train_constrained)).collect();
        self.newest = self.newest.max(branches.iter().filter_map(|branch| branch.newest).max());
        trial.oldest = match self.rules.on_fork {
            OnFork::All | OnFork::Error => branches.iter().filter_map(|branch| branch.oldest).min(),
            OnFork::Longest => {
                let longest = mask::longest(branches.iter().map(|branch| branch.trainable));
                longest.and_then(|index| branches.get(index)?.oldest)
            }
        };
    }
}

//! The first pass over an export's input: the trials, their results and the age of their tokens. It stores no tokens.

use std::collections::{HashMap, HashSet};

use super::mask::{self, BranchAge};
use super::projection::{RowAge, RowFacts};
use super::rules::{OnFork, Rules};

/// The properties of an export's input before any output is written.
#[derive(Debug)]
pub struct Survey {
    pub(crate) rules: Rules,
    /// The trials in the order of the input.
    pub(crate) trials: Vec<Seen>,
    by_id: HashMap<String, usize>,
    /// The groups to which no further trial is added.
    pub(crate) closed: HashSet<String>,
    /// The newest policy version that sampled any token.
    pub(crate) newest: Option<i32>,
}

/// A trial after the first pass.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) facts: RowFacts,
    /// False for a trial that sampled nothing. Such a trial counts, but there is nothing to export.
    pub(crate) has_rows: bool,
    /// The oldest policy version of the tokens that would be trained, if the rules require ages.
    pub(crate) oldest: Option<i32>,
}

/// The error that a trial appears twice in the input.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "trial {0} is in the input twice, with another in between; trials of two sources must differ in trial_id"
)]
pub struct SeenTwice(pub String);

impl Survey {
    /// Returns a survey of an empty input.
    pub fn new(rules: Rules) -> Self {
        Self { rules, trials: Vec::new(), by_id: HashMap::new(), closed: HashSet::new(), newest: None }
    }

    /// Whether [`Self::age`] must be called for each trial. It reads every token.
    pub fn asks_for_ages(&self) -> bool {
        self.rules.staleness.is_some()
    }

    /// The number of trials.
    pub fn len(&self) -> usize {
        self.trials.len()
    }

    /// Whether the survey has this trial.
    pub fn has(&self, trial_id: &str) -> bool {
        self.by_id.contains_key(trial_id)
    }

    /// Whether the survey has no trial.
    pub fn is_empty(&self) -> bool {
        self.trials.is_empty()
    }

    /// Adds a trial by the first of its rows.
    ///
    /// # Errors
    /// The survey already has this trial.
    pub fn trial(&mut self, facts: RowFacts) -> Result<(), SeenTwice> {
        self.add(facts, true)
    }

    /// Adds a trial that sampled nothing and so has no rows.
    ///
    /// # Errors
    /// The survey already has this trial.
    pub fn trial_without_rows(&mut self, facts: RowFacts) -> Result<(), SeenTwice> {
        self.add(facts, false)
    }

    /// Whether closed groups affect the plan: some group has fewer trials than its size.
    pub fn asks_for_closed_groups(&self) -> bool {
        let mut groups: HashMap<&str, (HashSet<i32>, Option<usize>)> = HashMap::new();
        for Seen { facts, .. } in self.trials.iter().filter(|seen| !seen.facts.superseded) {
            let Some(group_id) = facts.group_id.as_deref() else { continue };
            let (samples, size) = groups.entry(group_id).or_default();
            samples.insert(facts.sample_index);
            // The plan verifies later that all trials of a group name the same size.
            *size = facts.samples_of_group();
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

    /// Marks a group to which no further trial is added.
    pub fn group_is_closed(&mut self, group_id: String) {
        self.closed.insert(group_id);
    }

    /// Adds the ages of a trial's tokens, from all of its rows together.
    pub fn age(&mut self, rows: &[RowAge]) {
        let Some(trial) = rows.first().and_then(|row| self.by_id.get(&row.trial_id)) else { return };
        let Some(trial) = self.trials.get_mut(*trial) else { return };
        let branches: Vec<_> =
            rows.iter().map(|row| BranchAge::of(row, self.rules.train_constrained)).collect();
        // The newest version is that of every sampled token: a masked token also shows that these weights existed.
        self.newest = self.newest.max(branches.iter().filter_map(|branch| branch.newest).max());
        trial.oldest = match self.rules.on_fork {
            // Only the exported branches can be too old.
            OnFork::All | OnFork::Error => branches.iter().filter_map(|branch| branch.oldest).min(),
            OnFork::Longest => {
                let longest = mask::longest(branches.iter().map(|branch| branch.trainable));
                longest.and_then(|index| branches.get(index)?.oldest)
            }
        };
    }
}

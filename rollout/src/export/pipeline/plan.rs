//! What becomes of each trial: decided of all of them together, after a first pass and before the second.

mod selection;
mod weighing;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::advantage::Advantage;
use super::rules::Rules;
use super::survey::Survey;
use crate::export::choices::Named;
use crate::export::exporter::GroupPlace;

/// What becomes of each trial of an input.
#[derive(Debug)]
pub struct Plan {
    pub(crate) rules: Rules,
    /// Of those that are exported.
    pub(crate) verdicts: HashMap<String, Verdict>,
    /// Every other trial of the input.
    left_out: BTreeMap<LeftOut, u64>,
    groups: usize,
    failed: u64,
    alone: u64,
}

/// How a trial is exported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) reward: Option<f64>,
    pub(crate) is_masked: bool,
    pub(crate) advantage: Option<f64>,
    pub(crate) group: Option<GroupPlace>,
}

/// Why a trial is not exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeftOut {
    /// A later attempt counts.
    Superseded,
    /// Others of its group are missing.
    OpenGroup,
    /// It failed, and failed ones are dropped.
    Failed,
    /// Another one of its group failed, and with it goes the group.
    FailedGroup,
    /// It holds tokens of too old a policy.
    Stale,
    /// It sampled nothing.
    WithoutTokens,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superseded => "superseded by a later attempt (--superseded takes them)",
            Self::OpenGroup => "of groups that are not whole (--open-groups takes them)",
            Self::Failed => "failed (--failed drop)",
            Self::FailedGroup => "of groups in which a trial failed (--failed drop-group)",
            Self::Stale => "with tokens of too old a policy (--max-staleness)",
            Self::WithoutTokens => "without a sampled token",
        })
    }
}

/// Why nothing can be decided.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Nothing can be trained on that, and no mean be taken of it.
    #[error(
        "trial {trial_id}: the reward is {value}, which is no number to train on; correct it before export"
    )]
    Reward {
        /// The trial.
        trial_id: String,
        /// Its reward.
        value: f64,
    },
    /// Nobody could tell which counts.
    #[error(
        "trials {first} and {second} are both attempt {attempt} at sample {sample_index} of group {group_id}; a group's samples have to be told apart"
    )]
    OneSampleTwice {
        /// The group.
        group_id: String,
        /// The sample.
        sample_index: i32,
        /// The attempt.
        attempt: i32,
        /// One of the trials.
        first: String,
        /// The other.
        second: String,
    },
    /// One list of ids would be of two vocabularies.
    #[error(
        "trials {first} and {second} are of two tokenizers ({known} and {said}), whose ids mean different tokens; export them apart"
    )]
    Tokenizers {
        /// One of the trials.
        first: String,
        /// The hash of its tokenizer.
        known: String,
        /// The other.
        second: String,
        /// The hash of that one's.
        said: String,
    },
    /// Nobody could tell when it is whole.
    #[error("trial {trial_id} says that group {group_id} has {said:?} trials, another one says {known:?}")]
    GroupSize {
        /// The trial.
        trial_id: String,
        /// The group.
        group_id: String,
        /// What the trial says.
        said: Option<i32>,
        /// What others say.
        known: Option<i32>,
    },
    /// There is nothing that it could be weighed against.
    #[error("trial {trial_id} has no group in which --advantage {} could weigh it; use --advantage none, or open trials with a group_id", .advantage.name())]
    Ungrouped {
        /// The trial.
        trial_id: String,
        /// What was asked for.
        advantage: Advantage,
    },
    /// A misspelt name would make failures of all trials.
    #[error("no trial has a reward named {name:?}; the names are: {}", .known.join(", "))]
    NoSuchReward {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The rewards are too large for arithmetic.
    #[error("group {group_id}: the rewards are too large to be weighed against each other")]
    Advantage {
        /// The group.
        group_id: String,
    },
}

impl Plan {
    /// How many trials are exported.
    pub fn trials(&self) -> usize {
        self.verdicts.len()
    }

    /// How many groups they are of.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// How many trials are not exported, and why.
    pub fn left_out(&self) -> impl Iterator<Item = (LeftOut, u64)> {
        self.left_out.iter().map(|(why, count)| (*why, *count))
    }

    /// How many failed trials are exported, which train nothing or count as 0.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// How many trials have an advantage of 0 because no other one of their group counts.
    pub fn alone(&self) -> u64 {
        self.alone
    }
}

impl Survey {
    /// Decides what becomes of each trial.
    ///
    /// # Errors
    /// What the trials say of themselves does not let anybody decide.
    pub fn plan(self) -> Result<Plan, PlanError> {
        weighing::weigh(&selection::select(&self)?, &self.rules)
    }
}

#[cfg(test)]
mod tests;

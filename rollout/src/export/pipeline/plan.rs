//! The plan of an export: how each trial is exported. It considers all trials together, between the two passes.

mod by_reward;
mod groups;
mod selection;
mod weighing;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use super::advantage::Advantage;
use super::projection::RowFacts;
use super::rules::Rules;
use super::stand_in;
use super::survey::Survey;
use crate::export::choices::Named;
use crate::export::exporter::{GroupPlace, Trial};

/// How each trial of an input is exported.
#[derive(Debug)]
pub struct Plan {
    pub(crate) rules: Rules,
    /// The verdicts of the exported trials, by trial.
    pub(crate) verdicts: HashMap<String, Verdict>,
    /// The reasons why the other trials are not exported, by trial.
    left_out: HashMap<String, LeftOut>,
    /// Trials that have no rows and nevertheless have a place in their group.
    rowless: Vec<Rowless>,
    counts: PlanCounts,
    /// The names of all rewards of the input.
    reward_names: BTreeSet<String>,
}

/// The numbers of trials and groups with a special treatment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanCounts {
    /// The groups of the exported trials.
    pub groups: usize,
    /// The exported failed trials, which are not trained or count as 0.
    pub failed: u64,
    /// The trials with an advantage of 0 because no other trial of their group counts.
    pub alone: u64,
    /// The trials that sampled nothing and count in the baseline of their group with their reward.
    pub rewarded_without_tokens: u64,
    /// The stand-ins without a trial, which fill groups for a trainer that counts.
    pub fillers: u64,
    /// The failed trials that have rewards by name and none to train on.
    pub unchosen_rewards: u64,
    /// The groups with a single stand-in for a reward, which makes the deviation of the group smaller for the trainer.
    pub smaller_deviation: u64,
}

/// A trial without rows that a format gets nevertheless, because its trainer includes it in its group.
#[derive(Debug)]
struct Rowless {
    facts: RowFacts,
    verdict: Verdict,
}

/// How a trial is exported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) reward: Option<f64>,
    /// The number in place of a missing reward, if the trainer compares rewards.
    pub(crate) stand_in: Option<f64>,
    pub(crate) is_masked: bool,
    pub(crate) advantage: Option<f64>,
    pub(crate) group: Option<GroupPlace>,
}

/// Why a trial is not exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeftOut {
    /// A later attempt counts.
    Superseded,
    /// Other trials of its group are missing.
    OpenGroup,
    /// The trial failed, and failed trials are dropped.
    Failed,
    /// Another trial of its group failed, and the whole group is dropped.
    FailedGroup,
    /// It has tokens of a policy that is too old.
    Stale,
    /// The trial sampled nothing and failed.
    WithoutTokens,
    /// Its reward is too low, or it has none.
    LowReward,
    /// Other trials of its group have higher rewards.
    NotBest,
    /// Nothing of its group is trained.
    NothingTrained,
    /// It is the only trial of its group with a reward, and the trainer compares rewards.
    OnlyReward,
    /// Its group has fewer rewards than the trainer counts.
    ShortGroup,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superseded => "superseded by a later attempt (--superseded takes them)",
            Self::OpenGroup => "of groups that are not whole (--open-groups takes them)",
            Self::Failed => "failed (--failed drop)",
            Self::FailedGroup => "of groups in which a trial failed (--failed drop-group)",
            Self::Stale => "with tokens of too old a policy (--max-staleness)",
            Self::WithoutTokens => "failed without a sampled token",
            Self::LowReward => "with a reward below --min-reward, or without a reward",
            Self::NotBest => "that are not the best of their group (--best-of-group)",
            Self::NothingTrained => "of groups in which nothing is trained: each trial failed or sampled nothing",
            Self::OnlyReward => {
                "of groups with a single reward, which the trainer would use as an advantage (--failed zero gives the \
                 failed ones a reward)"
            }
            Self::ShortGroup => "of groups with fewer rewards than trials (--short-groups pad fills them)",
        })
    }
}

/// Why there is no plan.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The reward is not finite, so it cannot be trained and has no mean.
    #[error(
        "trial {trial_id}: the reward is {value}, which is no number to train on; correct it before export"
    )]
    Reward {
        /// The trial.
        trial_id: String,
        /// Its reward.
        value: f64,
    },
    /// Two trials are the same attempt at a sample, and nothing decides which of these counts.
    #[error(
        "trials {first} and {second} are both attempt {attempt} at sample {sample_index} of group {group_id}; the samples of a group must be distinguishable"
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
    /// Trials have different tokenizers, so their ids would belong to two vocabularies.
    #[error(
        "trials {first} and {second} are of two tokenizers ({known} and {said}), whose ids mean different tokens; export them apart"
    )]
    Tokenizers {
        /// One of the trials.
        first: String,
        /// The hash of its tokenizer.
        known: String,
        /// The other trial.
        second: String,
        /// The hash of the other trial's tokenizer.
        said: String,
    },
    /// Trials of a group name different sizes, so nothing decides when the group is complete.
    #[error("trial {trial_id} has group_size {said:?} for group {group_id}, another trial has {known:?}")]
    GroupSize {
        /// The trial.
        trial_id: String,
        /// The group.
        group_id: String,
        /// The size that the trial names.
        said: Option<i32>,
        /// The size that an earlier trial names.
        known: Option<i32>,
    },
    /// The trial has no group in which an advantage can be computed.
    #[error("trial {trial_id} has no group in which --advantage {} could weigh it; use --advantage none, or open trials with a group_id", .advantage.name())]
    Ungrouped {
        /// The trial.
        trial_id: String,
        /// The requested advantage.
        advantage: Advantage,
    },
    /// No trial has the requested reward. A misspelt name would turn all trials into failures.
    #[error("no trial has a reward named {name:?}; the names are: {}", .known.join(", "))]
    NoSuchReward {
        /// The requested name.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
    /// The rewards are too large for floating-point arithmetic.
    #[error("group {group_id}: the rewards are too large to be weighed against each other")]
    Advantage {
        /// The group.
        group_id: String,
    },
}

impl Plan {
    /// The number of exported trials with rows.
    pub fn trials(&self) -> usize {
        self.verdicts.len()
    }

    /// Returns the trials without rows of their own that the trainer includes in their groups, each with a stand-in row.
    /// They come before the trials of the input, so that a format never waits for them.
    pub fn rowless_trials(&self) -> impl Iterator<Item = Trial> {
        self.rowless.iter().map(|Rowless { facts, verdict }| Trial {
            rows: vec![stand_in::row(facts)],
            reward: verdict.reward,
            stand_in: verdict.stand_in,
            advantage: verdict.advantage,
            group: verdict.group,
            left_out: 0,
        })
    }

    /// The names of all rewards of the input, in alphabetical order.
    pub fn reward_names(&self) -> Vec<String> {
        self.reward_names.iter().cloned().collect()
    }

    /// The numbers of trials and groups with a special treatment.
    pub fn counts(&self) -> PlanCounts {
        self.counts
    }

    /// The numbers of trials that are not exported, by reason.
    pub fn left_out(&self) -> impl Iterator<Item = (LeftOut, u64)> {
        let mut counts = BTreeMap::new();
        for why in self.left_out.values() {
            *counts.entry(*why).or_default() += 1;
        }
        counts.into_iter()
    }

    /// Returns why a trial is not exported. `None` if it is exported, or if the input does not have it.
    pub fn why_left_out(&self, trial_id: &str) -> Option<LeftOut> {
        self.left_out.get(trial_id).copied()
    }
}

impl Survey {
    /// Decides how each trial is exported.
    ///
    /// # Errors
    /// The data of the trials do not allow a decision.
    pub fn plan(self) -> Result<Plan, PlanError> {
        weighing::plan(&selection::select(&self)?, &self.rules)
    }
}

#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod tests;

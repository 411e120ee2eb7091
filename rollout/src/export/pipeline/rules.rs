//! The rules of an export: which trials it takes, and how it treats those that it does not train.

use std::num::NonZeroUsize;

use super::advantage::Advantage;
use crate::export::choices::named;
use crate::rollout::RewardRule;

named! {
    /// The treatment of a trial with several branches.
    pub enum OnFork {
        /// the branch with the most trainable tokens, the first of those that have as many
        Longest = "longest",
        /// every branch; a sampled token that several share is trained in one
        All = "all",
        /// no export
        Error = "error",
    }
}

named! {
    /// The treatment of a failed trial: a trial without a reward, or with a reward that does not measure the agent.
    pub enum Failed {
        /// stays in its group and trains nothing; a trainer that requires its reward gets a stand-in
        Mask = "mask",
        /// counts as a reward of 0
        Zero = "zero",
        /// is left out
        Drop = "drop",
        /// is left out with its whole group
        DropGroup = "drop-group",
    }
}

named! {
    /// The treatment of a group with fewer rewards than the trainer counts, in a format whose trainer finds the trials
    /// of a group by counting.
    pub enum ShortGroups {
        /// is filled with rows of two tokens that train nothing; their rewards keep the mean and the deviation
        Pad = "pad",
        /// is left out
        Drop = "drop",
    }
}

/// How the trainer of an export finds the trials whose rewards it compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The trainer compares no rewards of this export. It takes advantages, or the export is a record of trials.
    Never,
    /// The trainer compares the trials with the same name of a group, of any number.
    Named,
    /// The trainer compares each run of a fixed number of trials, so all groups must have this number.
    Counted(ShortGroups),
}

/// The rules of an export.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The treatment of trials with several branches.
    pub on_fork: OnFork,
    /// The treatment of failed trials.
    pub failed: Failed,
    /// The rule for the advantages within a group.
    pub advantage: Advantage,
    /// How the trainer finds the trials that it compares.
    pub comparison: Comparison,
    /// Whether to export groups with missing trials.
    pub open_groups: bool,
    /// Whether to export groups in which nothing is trained, masked.
    pub untrained_groups: bool,
    /// Whether to export superseded attempts too.
    pub superseded: bool,
    /// Whether to train calls whose logprobs are not those of the distribution that was sampled from.
    pub train_constrained: bool,
    /// The rule that makes the number to train on of the entries of `rewards`, instead of `reward`.
    pub reward: Option<RewardRule>,
    /// The maximal age of the oldest trained token.
    pub staleness: Option<Staleness>,
    /// The lowest reward of an exported trial. `None` exports all rewards.
    pub min_reward: Option<f64>,
    /// The number of trials with the highest rewards to export of each group. `None` exports all.
    pub best_of_group: Option<NonZeroUsize>,
}

impl Rules {
    /// Whether the trainer compares the rewards of this export.
    pub fn compares(&self) -> bool {
        self.comparison != Comparison::Never
    }
}

/// The maximal age of the oldest trained token of a trial. A trial with an older token is omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staleness {
    /// The limit in policy versions.
    pub limit: u32,
    /// The version from which the age is counted. `None` for the newest version of the input.
    pub policy_version: Option<i32>,
}

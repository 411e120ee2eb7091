//! What an export takes of its input, and what becomes of what it does not train.

use super::advantage::Advantage;
use crate::export::choices::named;

named! {
    /// What becomes of a trial of several branches.
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
    /// What becomes of a failed trial: one without a reward, or whose reward does not measure the agent.
    pub enum Failed {
        /// stays in its group, and trains nothing
        Mask = "mask",
        /// counts as a reward of 0
        Zero = "zero",
        /// is left out
        Drop = "drop",
        /// is left out with its whole group
        DropGroup = "drop-group",
    }
}

/// What an export takes of its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What becomes of trials of several branches.
    pub on_fork: OnFork,
    /// What becomes of failed trials.
    pub failed: Failed,
    /// How trials of a group are weighed against each other.
    pub advantage: Advantage,
    /// Groups are taken of which trials are still missing.
    pub open_groups: bool,
    /// Superseded attempts are taken too.
    pub superseded: bool,
    /// Calls are trained whose logprobs are not those of the distribution that they were sampled from.
    pub train_constrained: bool,
    /// The one of a trial's `rewards` to train on, instead of its `reward`.
    pub reward: Option<String>,
    /// How old the oldest trained token may be.
    pub staleness: Option<Staleness>,
}

/// How old the oldest trained token of a trial may be. A trial that holds an older one is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staleness {
    /// In policy versions.
    pub limit: u32,
    /// What age is counted from; none for the newest version of the input.
    pub policy_version: Option<i32>,
}

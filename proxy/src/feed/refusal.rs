//! The reasons why a trial cannot be opened in its group.

use rolltap_rollout::ids::{GroupId, TrialId};

use crate::api::ClosingCause;

/// The reason why a trial cannot be opened in its group.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum OpenRefusal {
    #[error(
        "group {group} is closed ({}): it takes no further trial; open it under another group_id",
        .cause.in_words()
    )]
    GroupClosed { group: GroupId, cause: ClosingCause },
    #[error(
        "attempt {attempt} of sample {sample_index} of group {group} is trial {trial} already: give this one a \
         sample_index of its own or, for a retry, a higher attempt"
    )]
    AttemptTaken { group: GroupId, sample_index: u32, attempt: u32, trial: TrialId },
    #[error("group {group} has group_size {known}, and this trial gives {said}: give the same value or none")]
    OtherSize { group: GroupId, known: u32, said: u32 },
    #[error(
        "group {group} has group_deadline {known} s, and this trial gives {said}: give the same value or none"
    )]
    OtherDeadline { group: GroupId, known: f64, said: f64 },
    #[error("group_size is 0: a group has one sample at least")]
    NoSamples,
    #[error("group_deadline is of a group: give a group_id with it")]
    DeadlineOfNoGroup,
}

impl OpenRefusal {
    /// Whether the request is wrong by itself, whatever other trials there are.
    pub(crate) fn is_of_request(&self) -> bool {
        matches!(self, Self::NoSamples | Self::DeadlineOfNoGroup)
    }
}

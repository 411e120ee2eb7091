//! The cause of each branch: why the tokens of a trial are not one sequence.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a branch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BranchCause {
    /// The first call of the trial, or of its main conversation if only titles, probes and similar calls precede it.
    FirstCall,
    /// A further answer (`n > 1`) of a call whose first answer is on an earlier branch.
    OtherChoice,
    /// The prompt extends an answer that an earlier call already extends.
    Fork,
    /// A separate conversation, with other instructions or another task than the earlier ones.
    SubAgent,
    /// A new conversation that contains an earlier answer: the agent has summarised its context.
    Compaction,
    /// The messages begin like an earlier conversation and then differ: they were truncated, edited or rolled back.
    HistoryEdited,
    /// The same messages again, before any answer: the retry of a first turn.
    Resampled,
    /// The messages continue an earlier conversation, but another input of the prompt has changed: tools, template
    /// arguments, or reasoning effort.
    InputsChanged,
    /// The chat template renders earlier turns differently than before, or differently from the sampled tokens: it
    /// removed earlier reasoning, or a date changed.
    TemplateRewroteHistory,
    /// A stop string ended the answer. It was sampled, but the conversation does not contain it.
    StopStringRemoved,
    /// The server does not accept prompts as token ids, or rejected this one.
    UpstreamUnable,
    /// There is no proof that the prompt that continues the tokens equals the template's own rendering.
    Unproven,
    /// Several answers match the messages, and their tokens differ.
    Ambiguous,
    /// The prompt begins with no earlier answer, and the cause was not determined: `history` is `off`, or the dialect
    /// has no messages.
    NoSharedPrefix,
}

impl BranchCause {
    /// Every cause, for counters.
    pub const ALL: [Self; 14] = [
        Self::FirstCall,
        Self::OtherChoice,
        Self::Fork,
        Self::SubAgent,
        Self::Compaction,
        Self::HistoryEdited,
        Self::Resampled,
        Self::InputsChanged,
        Self::TemplateRewroteHistory,
        Self::StopStringRemoved,
        Self::UpstreamUnable,
        Self::Unproven,
        Self::Ambiguous,
        Self::NoSharedPrefix,
    ];

    /// The name in records and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FirstCall => "first_call",
            Self::OtherChoice => "other_choice",
            Self::Fork => "fork",
            Self::SubAgent => "sub_agent",
            Self::Compaction => "compaction",
            Self::HistoryEdited => "history_edited",
            Self::Resampled => "resampled",
            Self::InputsChanged => "inputs_changed",
            Self::TemplateRewroteHistory => "template_rewrote_history",
            Self::StopStringRemoved => "stop_string_removed",
            Self::UpstreamUnable => "upstream_unable",
            Self::Unproven => "unproven",
            Self::Ambiguous => "ambiguous",
            Self::NoSharedPrefix => "no_shared_prefix",
        }
    }
}

impl fmt::Display for BranchCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_reports_have_one_name() {
        for cause in BranchCause::ALL {
            assert_eq!(serde_json::to_string(&cause).unwrap(), format!("\"{cause}\""));
        }
    }
}

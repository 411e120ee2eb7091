//! Why a trial's tokens are not one sequence: the cause of each branch.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a branch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BranchCause {
    /// The trial's first call, or that of its main conversation where only titles, probes and the like came before.
    FirstCall,
    /// Another answer (`n > 1`) of a call whose first answer is on an earlier branch.
    OtherChoice,
    /// Extends an answer that an earlier call extends already.
    Fork,
    /// Another conversation than the ones before: other instructions, another task.
    SubAgent,
    /// A new conversation that holds what an earlier answer said: the agent has summarised its context.
    Compaction,
    /// The messages begin like an earlier conversation's and then differ: truncated, edited, rolled back.
    HistoryEdited,
    /// The same messages once more, where no answer precedes them: a first turn that was retried.
    Resampled,
    /// The messages continue an earlier conversation, but something else that the prompt is made of is not the same:
    /// tools, template arguments, reasoning effort.
    InputsChanged,
    /// The chat template no longer shows what it showed, or does not show what was sampled: earlier reasoning removed, a
    /// date changed.
    TemplateRewroteHistory,
    /// The answer was ended by a stop string, which was sampled and which the conversation does not show.
    StopStringRemoved,
    /// The server does not take prompts as token ids, or refused this one.
    UpstreamUnable,
    /// The prompt that continues the tokens could not be proven to be the template's own.
    Unproven,
    /// Several answers fit what the messages say, and their tokens differ.
    Ambiguous,
    /// Its prompt begins with no earlier answer, and nobody looked into why: `history` is `off`, or the dialect has no
    /// messages.
    NoSharedPrefix,
}

impl BranchCause {
    /// Every cause, for those who count.
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

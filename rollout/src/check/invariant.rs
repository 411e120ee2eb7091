//! What must hold of rollout rows, by name.

use std::fmt;

macro_rules! invariants {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What must hold of rollout rows. The names are stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Invariant {
            $($(#[$doc])* $variant,)*
        }

        impl Invariant {
            /// Every invariant.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in reports.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

invariants! {
    // Of each row by itself.
    /// `schema_version` is the one that this build knows.
    SchemaVersion = "schema_version",
    /// All per-token lists have the length of `token_ids`. Where they do not, nothing says which values belong
    /// together, and no other invariant of tokens is looked at.
    ListLengths = "list_lengths",
    /// Masks hold 0 and 1 alone.
    MaskValues = "mask_values",
    /// `loss_mask` ⊆ `trainable_mask` ⊆ `sampled_mask`.
    MaskNesting = "mask_nesting",
    /// Logprobs are finite and at most 0.
    LogprobValues = "logprob_values",
    /// Logprobs are 0.0 where nothing was sampled.
    LogprobOffMask = "logprob_off_mask",
    /// `token_version` is −1 where nothing was sampled, and at least 0 elsewhere.
    TokenVersion = "token_version",
    /// Token ids are at least 0 and below the size of the vocabulary, where that is known.
    TokenIdRange = "token_id_range",
    /// Each span of `calls` holds at least one token and lies within the row.
    SpanBounds = "span_bounds",
    /// The spans of `calls` are in order and disjoint, and no answer stands twice.
    SpanOrder = "span_order",
    /// The spans of `calls` cover `sampled_mask` exactly.
    SpanCoverage = "span_coverage",
    /// A span's `version` is the `token_version` of its first token.
    SpanVersion = "span_version",
    /// A span starts where its prompt ends.
    SpanPromptLen = "span_prompt_len",
    /// A span's parent is the span before it.
    SpanParent = "span_parent",
    /// A span's `sampling` is a JSON object, its `messages` JSON, its temperature and nucleus finite.
    SpanSampling = "span_sampling",
    /// A span's `role` is one of those known.
    SpanRole = "span_role",
    /// One model sampled all spans of a row that name theirs.
    SpanModel = "span_model",
    /// `origin` is one of those known.
    Origin = "origin",
    /// `prompt_len` is the index of the first sampled token, and there is one.
    PromptLen = "prompt_len",
    /// `reward`, `advantage` and `rewards` are finite.
    RewardFinite = "reward_finite",
    /// `status` is one of those known.
    Status = "status",
    /// `status`, `is_truncated`, `stop_reason` and the last call's finish reason agree.
    Truncation = "truncation",
    /// `branch_index` is below `num_branches`, and `is_last_branch` is set exactly on the last.
    BranchPosition = "branch_position",
    /// `branch_reprefilled` is no more than the longest prompt of its calls.
    BranchReprefilled = "branch_reprefilled",
    /// `sample_index` is below `group_size`, and neither it nor `attempt` is negative.
    GroupPosition = "group_position",

    // Of the rows of one trial together.
    /// The rows of a trial stand next to each other.
    TrialAdjacent = "trial_adjacent",
    /// A trial has each branch from 0 to `num_branches` once, in order.
    BranchOrder = "branch_order",
    /// What is said of the trial is the same on all of its rows.
    TrialColumns = "trial_columns",
    /// Where branches share an answer, it stands at the same place with the same tokens before and in it, the same
    /// logprobs, versions and `trainable_mask`.
    SharedSpan = "shared_span",
    /// Each trainable token of a trial is in `loss_mask` of exactly one branch.
    LossOwner = "loss_owner",
    /// Of the branches that share a trainable token, the lowest owns it.
    LossOwnerLowest = "loss_owner_lowest",

    // Of rows held against what was captured, or against what the agent handed back.
    /// Each span is an answer that was captured.
    CapturedCall = "captured_call",
    /// A branch, cut at a span's start, is the prompt that was captured.
    CapturedPrompt = "captured_prompt",
    /// A span's tokens, logprobs, versions and finish reason are those captured.
    CapturedAnswer = "captured_answer",
    /// A row's `origin` is that of its calls.
    CapturedOrigin = "captured_origin",
    /// A span's role is the one that the captured calls give it.
    CapturedRole = "captured_role",
    /// A span's model is the one that the answer named.
    CapturedModel = "captured_model",
    /// A trainable token belongs to a call that can be trained on, of a role that the trial trains, and has a captured
    /// logprob.
    CapturedTrainable = "captured_trainable",
    /// Every answer of a complete call with ids is in some branch.
    CapturedPresence = "captured_presence",
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
